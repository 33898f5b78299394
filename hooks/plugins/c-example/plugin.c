/*
 * A hook library in C: the annotation example.koordinator.sh/oom-score-adj of a pod sets the oom_score_adj of its
 * containers when they are created, and they are told by the environment variable EXAMPLE_OOM_SCORE_ADJ.
 *
 * Compile it with
 *
 *   cc -std=c11 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden -I hooks/sdk/include -o c-example.so plugin.c
 *
 * It reads and writes the few fields it needs of protobuf's encoding by hand. A field is a key, which is its number
 * times eight plus its kind, and a value: kind 0 is a number of 1 to 10 octets with 7 bits each, least significant
 * first, and kind 2 a length, written as such a number, and so many octets. A map is a repeated message with the key as
 * field 1 and the value as field 2.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "koord_hook.h"

static const char annotation[] = "example.koordinator.sh/oom-score-adj";
static const char environment[] = "EXAMPLE_OOM_SCORE_ADJ";

/* Fields of ContainerResourceHookRequest, ContainerResourceHookResponse and LinuxContainerResources. */
enum {
    REQUEST_POD_ANNOTATIONS = 6,
    ANSWER_CONTAINER_RESOURCES = 2,
    ANSWER_CONTAINER_ENVS = 4,
    RESOURCES_OOM_SCORE_ADJ = 5
};

struct octets {
    const uint8_t *at;
    size_t length;
};

static bool read_number(struct octets *from, uint64_t *number)
{
    *number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t octet;
        if (from->length == 0)
            return false;
        octet = *from->at++;
        from->length--;
        *number |= (uint64_t)(octet & 0x7f) << shift;
        if (!(octet & 0x80))
            return true;
    }
    return false;
}

/* Reads a field. *value is empty unless its kind is 2. */
static bool read_field(struct octets *from, uint64_t *number, struct octets *value)
{
    uint64_t key, length;

    value->at = from->at;
    value->length = 0;
    if (!read_number(from, &key))
        return false;
    *number = key >> 3;
    switch (key & 7) {
    case 0:
        return read_number(from, &length);
    case 1:
        length = 8;
        break;
    case 2:
        if (!read_number(from, &length))
            return false;
        break;
    case 5:
        length = 4;
        break;
    default:
        return false;
    }
    if (length > from->length)
        return false;
    if ((key & 7) == 2) {
        value->at = from->at;
        value->length = (size_t)length;
    }
    from->at += length;
    from->length -= (size_t)length;
    return true;
}

static bool is_text(struct octets octets, const char *text)
{
    return octets.length == strlen(text) && memcmp(octets.at, text, octets.length) == 0;
}

/* The value of the pod's annotation, or an empty one. False for a request that cannot be read. */
static bool find_annotation(struct octets request, struct octets *found)
{
    uint64_t number;
    struct octets entry, part;

    found->length = 0;
    while (request.length > 0) {
        struct octets key = {NULL, 0}, value = {NULL, 0};
        if (!read_field(&request, &number, &entry))
            return false;
        if (number != REQUEST_POD_ANNOTATIONS)
            continue;
        while (entry.length > 0) {
            if (!read_field(&entry, &number, &part))
                return false;
            if (number == 1)
                key = part;
            else if (number == 2)
                value = part;
        }
        if (is_text(key, annotation))
            *found = value;
    }
    return true;
}

struct writer {
    uint8_t octets[256];
    size_t length;
};

/* The answers below have less than 100 octets, so nothing needs to be done about more. */
static void write_octets(struct writer *to, const void *octets, size_t length)
{
    if (length <= sizeof(to->octets) - to->length) {
        memcpy(to->octets + to->length, octets, length);
        to->length += length;
    }
}

static void write_number(struct writer *to, uint64_t number)
{
    do {
        uint8_t octet = (number & 0x7f) | (number > 0x7f ? 0x80 : 0);
        write_octets(to, &octet, 1);
        number >>= 7;
    } while (number > 0);
}

static void write_part(struct writer *to, uint64_t field, const void *octets, size_t length)
{
    write_number(to, field << 3 | 2);
    write_number(to, length);
    write_octets(to, octets, length);
}

static int32_t answer_with(int32_t status, const void *octets, size_t length, uint8_t **answer, size_t *answer_length)
{
    *answer = malloc(length);
    if (!*answer)
        return KOORD_HOOK_ERROR;
    memcpy(*answer, octets, length);
    *answer_length = length;
    return status;
}

static int32_t init(const struct koord_hook_host *host, void **instance)
{
    (void)instance;
    /* A host of this major version does not load other libraries; this one needs nothing newer. */
    return host->abi_major == KOORD_HOOK_ABI_MAJOR ? KOORD_HOOK_OK : KOORD_HOOK_ERROR;
}

static int32_t call(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length)
{
    static const char mistake[] = "annotation example.koordinator.sh/oom-score-adj is no integer from -1000 to 1000";
    struct octets found;
    struct writer resources = {.length = 0}, entry = {.length = 0}, whole = {.length = 0};
    char text[16], *end;
    long score;

    (void)instance;
    if (stage != KOORD_HOOK_PRE_CREATE_CONTAINER)
        return KOORD_HOOK_UNKNOWN_STAGE;
    if (!find_annotation((struct octets){request, request_length}, &found))
        return KOORD_HOOK_BAD_REQUEST;
    if (found.length == 0)
        return KOORD_HOOK_OK;
    if (found.length >= sizeof(text))
        return answer_with(KOORD_HOOK_ERROR, mistake, sizeof(mistake) - 1, answer, answer_length);
    memcpy(text, found.at, found.length);
    text[found.length] = 0;
    errno = 0;
    score = strtol(text, &end, 10);
    if (errno || end == text || *end || score < -1000 || score > 1000)
        return answer_with(KOORD_HOOK_ERROR, mistake, sizeof(mistake) - 1, answer, answer_length);

    write_number(&resources, RESOURCES_OOM_SCORE_ADJ << 3);
    write_number(&resources, (uint64_t)(int64_t)score);
    write_part(&whole, ANSWER_CONTAINER_RESOURCES, resources.octets, resources.length);
    snprintf(text, sizeof(text), "%ld", score);
    write_part(&entry, 1, environment, sizeof(environment) - 1);
    write_part(&entry, 2, text, strlen(text));
    write_part(&whole, ANSWER_CONTAINER_ENVS, entry.octets, entry.length);
    return answer_with(KOORD_HOOK_OK, whole.octets, whole.length, answer, answer_length);
}

static void release(void *instance, uint8_t *answer, size_t answer_length)
{
    (void)instance;
    (void)answer_length;
    free(answer);
}

__attribute__((visibility("default"))) const struct koord_hook_plugin koord_hook_plugin_v1 = {
    .magic = KOORD_HOOK_MAGIC,
    .struct_size = sizeof(struct koord_hook_plugin),
    .abi_major = KOORD_HOOK_ABI_MAJOR,
    .abi_minor = KOORD_HOOK_ABI_MINOR,
    .name = "c-example",
    .version = "1.0",
    .stages = KOORD_HOOK_STAGE(KOORD_HOOK_PRE_CREATE_CONTAINER),
    .init = init,
    .call = call,
    .free = release,
};
