/* Descriptors of other versions: OLD_MINOR, NEW_MINOR, OTHER_MAJOR, OTHER_SYMBOL, BAD_MAGIC, SMALL, NO_CALL, NO_STAGE, NO_NAME. */
#define STAGES KOORD_HOOK_STAGE(KOORD_HOOK_PRE_CREATE_CONTAINER)
#define OWN_DESCRIPTOR
#include "common.h"

/* Minor version 0 ended before the flags. */
struct descriptor {
    uint64_t magic;
    uint32_t struct_size;
    uint16_t abi_major;
    uint16_t abi_minor;
    const char *name;
    const char *version;
    uint64_t stages;
    int32_t (*init)(const struct koord_hook_host *host, void **instance);
    int32_t (*call)(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length);
    void (*free)(void *instance, uint8_t *answer, size_t answer_length);
    void (*shutdown)(void *instance);
#ifdef NEW_MINOR
    uint64_t flags;
    uint64_t yet_unknown[4];
#endif
};

static int32_t call(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length)
{
    (void)instance, (void)stage, (void)request, (void)request_length;
    return say(KOORD_HOOK_OK, "\x1a\x01/", 3, answer, answer_length);
}

extern const struct descriptor SYMBOL_OF_TEST __asm__(
#ifdef OTHER_SYMBOL
    "koord_hook_plugin_v2"
#else
    "koord_hook_plugin_v1"
#endif
);

/* Behind a descriptor of minor version 0 stands what must not be taken for flags. */
const struct descriptor SYMBOL_OF_TEST = {
#ifdef BAD_MAGIC
    .magic = KOORD_HOOK_MAGIC + 1,
#else
    .magic = KOORD_HOOK_MAGIC,
#endif
#ifdef SMALL
    .struct_size = sizeof(struct descriptor) - 8,
#else
    .struct_size = sizeof(struct descriptor),
#endif
#ifdef OTHER_MAJOR
    .abi_major = 2,
#else
    .abi_major = 1,
#endif
#ifdef NEW_MINOR
    .abi_minor = 7,
    .flags = KOORD_HOOK_SERIAL | UINT64_C(0xff00),
    .yet_unknown = {1, 2, 3, 4},
#else
    .abi_minor = 0,
#endif
#ifdef NO_NAME
    .name = "",
#else
    .name = "other",
#endif
    .version = "0.1",
#ifdef NO_STAGE
    .stages = UINT64_C(1) << 40,
#else
    .stages = STAGES | UINT64_C(1) << 40,
#endif
    .init = init,
#ifndef NO_CALL
    .call = call,
#endif
    .free = release,
    .shutdown = END,
};
