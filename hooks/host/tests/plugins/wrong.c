/* Does at each stage something else that is wrong, or close to it. */
#define STAGES UINT64_C(0x7f)
#include "common.h"

static int32_t call(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length)
{
    (void)instance, (void)request, (void)request_length;
    switch (stage) {
    case KOORD_HOOK_PRE_RUN_POD_SANDBOX:
        /* Octets that are no message. */
        return say(KOORD_HOOK_OK, "\xff\xff\xff\xff\xff", 5, answer, answer_length);
    case KOORD_HOOK_POST_STOP_POD_SANDBOX:
        return say(KOORD_HOOK_ERROR, "no\nway", 6, answer, answer_length);
    case KOORD_HOOK_PRE_CREATE_CONTAINER:
        /* A length without a buffer. */
        *answer_length = 12;
        return KOORD_HOOK_OK;
    case KOORD_HOOK_PRE_START_CONTAINER:
        /* One octet more than is accepted. */
        *answer_length = 4 * 1024 * 1024 + 1;
        *answer = calloc(1, *answer_length);
        return *answer ? KOORD_HOOK_OK : KOORD_HOOK_ERROR;
    case KOORD_HOOK_POST_START_CONTAINER:
        /* As much as is accepted. */
        *answer_length = 4 * 1024 * 1024;
        *answer = calloc(1, *answer_length);
        return *answer ? KOORD_HOOK_OK : KOORD_HOOK_ERROR;
    case KOORD_HOOK_PRE_UPDATE_CONTAINER_RESOURCES:
        return -77;
    default:
        /* A buffer without octets. */
        return say(KOORD_HOOK_OK, "", 0, answer, answer_length);
    }
}
