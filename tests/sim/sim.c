/* tests/sim/sim.c - runs the simulator over seeds; a seed that fails is printed and replays
 * exactly. */
#include "tests/sim/sim.h"

#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct sim sim;
static bool has_oracle_failed; /* not an assert of the core */

static const char usage[] =
    "usage: sim [--seed S] [--runs N] [--events N] [--seconds T] [--least N] [--check-every K]\n"
    "           [--abrupt] [--crash] [--sweep] [--unverified] [--verbose]\n"
    "Runs the core against simulated devices and engines, one run a seed from S (default 1) on.\n"
    "  --runs N         so many runs; without it and --seconds: one\n"
    "  --events N       events of a run (default 20000)\n"
    "  --seconds T      begins no new run after T seconds\n"
    "  --least N        fails if fewer events were done by then\n"
    "  --check-every K  walks every record after each Kth event (default 64; 1 to find the first\n"
    "                   event after which something is wrong: the run is the same)\n"
    "  --abrupt         all engines vanish at the end, in whatever they are doing\n"
    "  --crash          the last event crashes at one of its effects\n"
    "  --sweep          runs of 1, 2, 3 ... --events events of each seed: every engine vanishes\n"
    "                   at every point, or, with --crash, all of it does\n"
    "  --unverified     what is read below the device is not verified: the oracle must see it,\n"
    "                   and then the exit status is 0\n"
    "  --verbose        prints every event, answer and effect\n";

void sim_trace_print(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
}

void sim_fail(const struct sim *failed, const char *format, ...)
{
    va_list arguments;

    (void)failed;
    has_oracle_failed = true;
    (void)fflush(stdout);
    (void)fputs("sim: ", stderr);
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputs("\n", stderr);
    abort();
}

/* Says how to see it again. */
static void print_replay(void)
{
    char text[300];

    (void)fflush(stdout);
    int length =
        snprintf(text, sizeof(text),
                 "sim: seed %lu failed at event %lu of %lu\n"
                 "sim: replay with --seed %lu --events %lu%s%s --verbose\n",
                 sim.seed, sim.event, sim.options.num_events, sim.seed, sim.options.num_events,
                 sim.options.is_abrupt ? " --abrupt" : "", sim.options.is_crash ? " --crash" : "");
    (void)!write(STDERR_FILENO, text, (size_t)length);
}

/* Asserts in the core, sim_fail(), and crashes. */
static void on_signal(int number)
{
    print_replay();
    if (sim.options.is_unverified && has_oracle_failed)
        _exit(0); /* as it should be */
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Sanitizers end a process in their own way; without them this is not there. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static double seconds_since(const struct timespec *begin)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begin->tv_sec) + (double)(now.tv_nsec - begin->tv_nsec) * 1e-9;
}

struct arguments {
    uint64_t seed, num_runs, least;
    double seconds;
    bool is_sweep;
    struct sim_options options;
};

static bool arguments_read(int argc, char **argv, struct arguments *out)
{
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"runs", required_argument, NULL, 'r'},
                                            {"events", required_argument, NULL, 'e'},
                                            {"seconds", required_argument, NULL, 't'},
                                            {"least", required_argument, NULL, 'l'},
                                            {"verbose", no_argument, NULL, 'v'},
                                            {"abrupt", no_argument, NULL, 'a'},
                                            {"crash", no_argument, NULL, 'k'},
                                            {"sweep", no_argument, NULL, 'w'},
                                            {"unverified", no_argument, NULL, 'u'},
                                            {"check-every", required_argument, NULL, 'c'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int option;

    /* clang-format off */
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        uint64_t number = optarg ? strtoull(optarg, NULL, 0) : 0;
        switch (option) {
        case 's': out->seed = number; break;
        case 'r': out->num_runs = number; break;
        case 'e': out->options.num_events = number; break;
        case 't': out->seconds = (double)number; break;
        case 'l': out->least = number; break;
        case 'c': out->options.check_every = number ? (uint32_t)number : 1; break;
        case 'a': out->options.is_abrupt = true; break;
        case 'k': out->options.is_crash = true; break;
        case 'u': out->options.is_unverified = true; break;
        case 'w': out->is_sweep = true; break;
        case 'v': out->options.is_verbose = true; break;
        default:
            (void)fputs(usage, option == 'h' ? stdout : stderr);
            exit(option == 'h' ? 0 : 2);
        }
    }
    /* clang-format on */
    return optind == argc;
}

struct totals {
    uint64_t num_events, answers[17], counts[SIM_NUM_COUNTS];
};

/* One run; or one of each length up to the number of events. */
static void run_seed(const struct arguments *arguments, uint64_t number, struct totals *totals)
{
    struct sim_options options = arguments->options;
    uint64_t first = arguments->is_sweep ? 1 : options.num_events;

    options.is_abrupt |= arguments->is_sweep && !options.is_crash;
    for (options.num_events = first; options.num_events <= arguments->options.num_events;
         options.num_events++) {
        sim_run(&sim, arguments->seed + number, &options);
        totals->num_events += options.num_events;
        for (size_t i = 0; i < ARRAY_SIZE(totals->answers); i++)
            totals->answers[i] += sim.answers[i];
        for (size_t i = 0; i < SIM_NUM_COUNTS; i++)
            totals->counts[i] += sim.counts[i];
    }
}

int main(int argc, char **argv)
{
    static const char *const names[17] = {"ok",    "NOT_FOUND", "EXISTS", "INVALID", "NEVER_FITS",
                                          "QUOTA", "NO_BLOCKS", "LIMIT",  "STALE",   "DRAINING",
                                          "BUSY",  "PENDING",   "MISS",   "TIMEOUT", "FAILED",
                                          "RETRY", "errors"};
    static const char *const counts[SIM_NUM_COUNTS] = {
        [COUNT_STORES] = "stores",
        [COUNT_PROMOTIONS] = "promotions",
        [COUNT_COPY_FAULTS] = "faults",
        [COUNT_UNVERIFIED] = "reads refused by their sum",
        [COUNT_CRASHES] = "crashes",
        [COUNT_RESTORED] = "blocks restored",
        [COUNT_HITS_BELOW] = "allocations that waited"};
    struct arguments arguments = {.seed = 1, .options = {.num_events = 20000, .check_every = 64}};
    struct totals totals = {0};
    uint64_t num_runs = 0;
    struct timespec begin;

    if (!arguments_read(argc, argv, &arguments)) {
        (void)fputs(usage, stderr);
        return 2;
    }
    if (arguments.num_runs == 0)
        arguments.num_runs = arguments.seconds > 0 ? UINT64_MAX : 1;
    (void)signal(SIGABRT, on_signal);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(print_replay);
    else
        (void)signal(SIGSEGV, on_signal);
    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    while (num_runs < arguments.num_runs &&
           (arguments.seconds <= 0 || seconds_since(&begin) < arguments.seconds))
        run_seed(&arguments, num_runs++, &totals);

    double seconds = seconds_since(&begin);
    printf("%lu events in %lu runs from seed %lu, %.1f s, %.0f events/s\n", totals.num_events,
           num_runs, arguments.seed, seconds, (double)totals.num_events / seconds);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (totals.answers[i])
            printf("%s%s %lu", i ? ", " : "", names[i], totals.answers[i]);
    printf("\nbelow the device:");
    for (size_t i = 0; i < SIM_NUM_COUNTS; i++)
        printf("%s %lu %s", i ? "," : "", totals.counts[i], counts[i]);
    printf("\n");
    if (arguments.options.is_unverified) {
        (void)fputs("sim: bytes that nobody verified were never wrong\n", stderr);
        return 1;
    }
    if (totals.num_events < arguments.least) {
        (void)fprintf(stderr, "sim: fewer events than %lu\n", arguments.least);
        return 1;
    }
    return 0;
}
