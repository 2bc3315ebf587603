/* tests/sim/sim_random.c - random numbers from a seed (splitmix64), the same everywhere. */
#include "tests/sim/sim.h"

uint64_t mix64(uint64_t value)
{
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

uint64_t random_next(struct sim_random *random)
{
    random->state += 0x9e3779b97f4a7c15ULL;
    return mix64(random->state);
}

uint32_t random_below(struct sim_random *random, uint32_t bound)
{
    return (uint32_t)(((random_next(random) >> 32) * bound) >> 32);
}

bool random_chance(struct sim_random *random, uint32_t one_in)
{
    return one_in && random_below(random, one_in) == 0;
}
