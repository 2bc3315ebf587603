/* pool/age.c - when a stamp of the order was given, about: how old the coldest block is. */
#include "pool/age.h"

enum { FIRST_EVERY_MS = 1000 };

void ages_tick(struct ages *ages, uint64_t stamp, bool is_first, uint64_t now_ms)
{
    if (ages->num == 0 && is_first)
        ages->start_ms = now_ms;
    if (ages->every_ms == 0)
        ages->every_ms = FIRST_EVERY_MS;
    if (ages->num > 0 && now_ms - ages->times_ms[ages->num - 1] < ages->every_ms)
        return;
    if (ages->num == AGE_SAMPLES) {
        for (uint32_t i = 0; i < AGE_SAMPLES / 2; i++) {
            ages->stamps[i] = ages->stamps[2 * i];
            ages->times_ms[i] = ages->times_ms[2 * i];
        }
        ages->num = AGE_SAMPLES / 2;
        ages->every_ms *= 2;
    }
    ages->stamps[ages->num] = stamp;
    ages->times_ms[ages->num++] = now_ms;
}

uint64_t ages_of(const struct ages *ages, uint64_t stamp, uint64_t now_ms)
{
    uint32_t low = 0, high = ages->num; /* samples below low are older than the stamp */

    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (ages->stamps[middle] < stamp)
            low = middle + 1;
        else
            high = middle;
    }
    return now_ms - (low == 0 ? ages->start_ms : ages->times_ms[low - 1]);
}
