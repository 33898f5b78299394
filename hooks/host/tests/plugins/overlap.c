/* Answers how many of its calls were under way at most while this one was, as the pod's cgroup parent. */
#define STAGES KOORD_HOOK_STAGE(KOORD_HOOK_PRE_CREATE_CONTAINER)
#include "common.h"

static int under_way, highest;

static int32_t call(void *instance, uint32_t stage, const uint8_t *request, size_t request_length,
                    uint8_t **answer, size_t *answer_length)
{
    uint8_t octets[3] = {0x1a, 1};
    int now = __atomic_add_fetch(&under_way, 1, __ATOMIC_SEQ_CST);
    int seen = __atomic_load_n(&highest, __ATOMIC_SEQ_CST);

    (void)instance, (void)stage, (void)request, (void)request_length;
    while (now > seen && !__atomic_compare_exchange_n(&highest, &seen, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    usleep(200000);
    octets[2] = (uint8_t)('0' + __atomic_load_n(&highest, __ATOMIC_SEQ_CST));
    __atomic_sub_fetch(&under_way, 1, __ATOMIC_SEQ_CST);
    return say(KOORD_HOOK_OK, octets, 3, answer, answer_length);
}
