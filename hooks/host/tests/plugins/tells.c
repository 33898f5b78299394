/* Tells about its process, in the answer's cgroup parent: "pid sid ppid core-limit address-space-limit descriptors". */
#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>

#define STAGES KOORD_HOOK_STAGE(KOORD_HOOK_PRE_CREATE_CONTAINER)
#include "common.h"

extern char **environ;

static int32_t call(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length)
{
    char octets[128] = {0x1a};
    struct rlimit core, space;
    DIR *folder = opendir("/proc/self/fd");
    int count = 0, length;
    struct dirent *entry;

    (void)instance, (void)stage, (void)request, (void)request_length;
    if (!folder || getrlimit(RLIMIT_CORE, &core) || getrlimit(RLIMIT_AS, &space))
        return KOORD_HOOK_ERROR;
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder))
            count++;
    closedir(folder);
    length = snprintf(octets + 2, sizeof(octets) - 2, "%d %d %d %lu %lu %d %d", getpid(), getsid(0), getppid(),
                      (unsigned long)core.rlim_max, (unsigned long)space.rlim_max, count,
                      environ && environ[0] != NULL);
    octets[1] = (char)length;
    return say(KOORD_HOOK_OK, octets, (size_t)length + 2, answer, answer_length);
}
