/* What most of the test libraries share. A library defines STAGES and call, and may define the rest. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "koord_hook.h"

#ifndef NAME
#define NAME "test"
#endif
#ifndef VERSION
#define VERSION "1.0"
#endif
#ifndef FLAGS
#define FLAGS 0
#endif

static int32_t call(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length);

#ifndef OWN_INIT
static int32_t init(const struct koord_hook_host *host, void **instance)
{
    if (host->struct_size < 8 || host->abi_major != 1)
        return KOORD_HOOK_ERROR;
    *instance = NULL;
    return KOORD_HOOK_OK;
}
#endif

static void release(void *instance, uint8_t *answer, size_t answer_length)
{
    (void)instance;
    (void)answer_length;
    free(answer);
}

#ifdef OWN_SHUTDOWN
static void end(void *instance);
#define END end
#else
#define END NULL
#endif

/* An answer of these octets. */
static inline int32_t say(int32_t status, const void *octets, size_t length, uint8_t **answer, size_t *answer_length)
{
    *answer = malloc(length ? length : 1);
    if (!*answer)
        return KOORD_HOOK_ERROR;
    memcpy(*answer, octets, length);
    *answer_length = length;
    return status;
}

#ifndef OWN_DESCRIPTOR
const struct koord_hook_plugin koord_hook_plugin_v1 = {
    .magic = KOORD_HOOK_MAGIC,
    .struct_size = sizeof(struct koord_hook_plugin),
    .abi_major = KOORD_HOOK_ABI_MAJOR,
    .abi_minor = KOORD_HOOK_ABI_MINOR,
    .name = NAME,
    .version = VERSION,
    .stages = STAGES,
    .init = init,
    .call = call,
    .free = release,
    .shutdown = END,
    .flags = FLAGS,
};
#endif
