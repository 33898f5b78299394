/* Answers the version as the pod's cgroup parent, so that tests see which library answered. With MARK it makes a file of
 * that name when it is shut down. */
#include <fcntl.h>

#define STAGES (KOORD_HOOK_STAGE(KOORD_HOOK_PRE_CREATE_CONTAINER) | KOORD_HOOK_STAGE(KOORD_HOOK_PRE_START_CONTAINER))
#define OWN_SHUTDOWN
#include "common.h"

static int32_t call(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length)
{
    uint8_t octets[64] = {0x1a, sizeof(VERSION) - 1};
    (void)instance, (void)stage, (void)request, (void)request_length;
    memcpy(octets + 2, VERSION, sizeof(VERSION) - 1);
    return say(KOORD_HOOK_OK, octets, sizeof(VERSION) + 1, answer, answer_length);
}

static void end(void *instance)
{
    (void)instance;
#ifdef MARK
    close(open(MARK, O_CREAT | O_WRONLY, 0600));
#endif
}
