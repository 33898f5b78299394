/* Crashes as soon as it is loaded. */
#define STAGES KOORD_HOOK_STAGE(KOORD_HOOK_PRE_CREATE_CONTAINER)
#include "common.h"

__attribute__((constructor)) static void at_load(void)
{
    abort();
}

static int32_t call(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length)
{
    (void)instance, (void)stage, (void)request, (void)request_length, (void)answer, (void)answer_length;
    return KOORD_HOOK_OK;
}
