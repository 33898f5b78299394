/*
 * The binary interface of hook libraries, version 1.
 *
 * A hook library is a shared object that exports one symbol, koord_hook_plugin_v1, a constant structure of the
 * type below. The host reads it, calls init once, then call for each hook, and shutdown once in the end.
 *
 * Requests and answers are messages of the runtime hook protocol (package runtime.v1alpha1, file api.proto) in
 * protobuf's binary encoding:
 *
 *   stage                                                     request                       answer
 *   PRE_RUN_POD_SANDBOX, POST_STOP_POD_SANDBOX                PodSandboxHookRequest         PodSandboxHookResponse
 *   all others                                                ContainerResourceHookRequest  ContainerResourceHookResponse
 *
 * Memory. Buffers the host passes are the host's and are valid during the call only. A buffer the library hands
 * out is the library's: the host copies it and gives it back to the library's free.
 *
 * Threads. init, and every call, may come from any thread, and several calls may be under way at once unless the
 * library says KOORD_HOOK_SERIAL. shutdown comes when no call is under way.
 *
 * Errors. Nothing may unwind or jump out of a function; C++ exceptions and the like are to be caught inside.
 *
 * Versions. Another major version is another interface, with another symbol; a host refuses a structure of a major
 * version it does not know. A minor version adds fields at the end of a structure, and struct_size tells which are
 * there: both sides leave alone what the other does not have.
 */
#ifndef KOORD_HOOK_H
#define KOORD_HOOK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The bytes "KOORDHK" and a one, as a number of the machine's byte order. */
#define KOORD_HOOK_MAGIC UINT64_C(0x4b4f4f5244484b01)
#define KOORD_HOOK_ABI_MAJOR 1
#define KOORD_HOOK_ABI_MINOR 1

/* Stages. The bit of stage S in a mask is 1 << S. */
enum koord_hook_stage {
    KOORD_HOOK_PRE_RUN_POD_SANDBOX = 0,
    KOORD_HOOK_POST_STOP_POD_SANDBOX = 1,
    KOORD_HOOK_PRE_CREATE_CONTAINER = 2,
    KOORD_HOOK_PRE_START_CONTAINER = 3,
    KOORD_HOOK_POST_START_CONTAINER = 4,
    KOORD_HOOK_PRE_UPDATE_CONTAINER_RESOURCES = 5,
    KOORD_HOOK_POST_STOP_CONTAINER = 6
};
#define KOORD_HOOK_STAGE(stage) (UINT64_C(1) << (stage))

/* What init and call return. With any status but KOORD_HOOK_OK the answer, if there is one, is a message in UTF-8
 * that says what went wrong. */
enum koord_hook_status {
    KOORD_HOOK_OK = 0,              /* no answer, or an empty one: nothing is to change */
    KOORD_HOOK_ERROR = 1,           /* the hook failed; the failure policy decides about the call */
    KOORD_HOOK_BAD_REQUEST = 2,     /* the request cannot be decoded */
    KOORD_HOOK_UNKNOWN_STAGE = 3,   /* a stage the library does not handle */
    KOORD_HOOK_PANIC = 4            /* the hook's code gave up; its state is as good as before */
};

/* Flags of a library. */
#define KOORD_HOOK_SERIAL UINT64_C(1) /* no two calls at once */

/* What the host says of itself. */
struct koord_hook_host {
    uint32_t struct_size;           /* in bytes, of the host's structure */
    uint16_t abi_major;
    uint16_t abi_minor;
};

/* What the library says of itself. */
struct koord_hook_plugin {
    uint64_t magic;                 /* KOORD_HOOK_MAGIC */
    uint32_t struct_size;           /* sizeof(struct koord_hook_plugin) when the library was compiled */
    uint16_t abi_major;             /* KOORD_HOOK_ABI_MAJOR */
    uint16_t abi_minor;             /* KOORD_HOOK_ABI_MINOR */
    const char *name;               /* UTF-8, 1 to 255 bytes before the NUL */
    const char *version;            /* UTF-8, 1 to 255 bytes before the NUL */
    uint64_t stages;                /* the stages it wants to be asked at; bits the host does not know are left alone */

    /* Makes what the library calls its own. *instance is handed to the other functions and may stay NULL. A status
     * other than KOORD_HOOK_OK refuses the library. */
    int32_t (*init)(const struct koord_hook_host *host, void **instance);

    /* Answers a request. *answer and *answer_length are NULL and 0 before, and may stay so. */
    int32_t (*call)(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length);

    /* Takes back a buffer that call has handed out. */
    void (*free)(void *instance, uint8_t *answer, size_t answer_length);

    /* Ends it. May be NULL. */
    void (*shutdown)(void *instance);

    /* Since minor version 1. */
    uint64_t flags;
};

/* What a library defines. */
extern const struct koord_hook_plugin koord_hook_plugin_v1;

#ifdef __cplusplus
}
#endif

#endif
