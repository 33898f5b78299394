/* Reads from nowhere before CreateContainer, and answers nothing before StartContainer. */
#define STAGES (KOORD_HOOK_STAGE(KOORD_HOOK_PRE_CREATE_CONTAINER) | KOORD_HOOK_STAGE(KOORD_HOOK_PRE_START_CONTAINER))
#include "common.h"

static int32_t call(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length)
{
    (void)instance, (void)request, (void)request_length, (void)answer, (void)answer_length;
    if (stage == KOORD_HOOK_PRE_CREATE_CONTAINER)
        return *(volatile int32_t *)8;
    return KOORD_HOOK_OK;
}
