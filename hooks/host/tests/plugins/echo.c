/* Answers its version and the stage as the pod's cgroup parent, so that tests see which library answered what. With SLOW
 * it takes so many microseconds before CreateContainer; with MARK it makes a file of that name when it is shut down. */
#include <fcntl.h>
#include <stdio.h>

#define STAGES (KOORD_HOOK_STAGE(KOORD_HOOK_PRE_CREATE_CONTAINER) | KOORD_HOOK_STAGE(KOORD_HOOK_PRE_START_CONTAINER))
#define OWN_SHUTDOWN
#include "common.h"

#ifndef SLOW
#define SLOW 0
#endif

static int32_t call(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length)
{
    char octets[64] = {0x1a};
    int length = snprintf(octets + 2, sizeof(octets) - 2, "%s/%u", VERSION, (unsigned)stage);

    (void)instance, (void)request, (void)request_length;
    if (SLOW && stage == KOORD_HOOK_PRE_CREATE_CONTAINER)
        usleep(SLOW);
    octets[1] = (char)length;
    return say(KOORD_HOOK_OK, octets, (size_t)length + 2, answer, answer_length);
}

static void end(void *instance)
{
    (void)instance;
#ifdef MARK
    close(open(MARK, O_CREAT | O_WRONLY, 0600));
#endif
}
