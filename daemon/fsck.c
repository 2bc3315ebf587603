/* daemon/fsck.c - `kvpoold fsck`: what is in a disk tier's directory that no daemon has open. */
#include "daemon/fsck.h"

#include "daemon/text.h"
#include "offload/disk.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FSCK_FINE = 0, FSCK_PROBLEMS = 1, FSCK_FAILED = 2, LINE_BYTES = 1024 };

struct report {
    bool is_json;
    uint64_t num_problems;
};

/* What is counted, once: for people and for programs. */
/* clang-format off */
#define AT(field) offsetof(struct disk_check, field)
static const struct row {
    const char *name, *text;
    size_t offset;
    bool is_problem;
} rows[] = {
    {"granules_used",    "granules in use",                               AT(granules_used),    false},
    {"granules_damaged", "granules whose use cannot be read: free",       AT(granules_damaged), true},
    {"headers_valid",    "blocks",                                        AT(headers_valid),    false},
    {"headers_stale",    "headers of an earlier use: no harm",            AT(headers_stale),    false},
    {"headers_damaged",  "torn or spoilt headers: their slots are free",  AT(headers_damaged),  true},
    {"data_valid",       "blocks whose data is right (--data)",           AT(data_valid),       false},
    {"data_damaged",     "blocks whose data is spoilt: misses (--data)",  AT(data_damaged),     true},
    {"unreadable_bytes", "bytes that the disk does not give",             AT(unreadable_bytes), true},
    {"file_bytes",       "bytes that are laid out",                       AT(file_bytes),       false},
    {"physical_bytes",   "bytes that it takes",                           AT(physical_bytes),   false},
};
/* clang-format on */
#define NUM_ROWS (sizeof(rows) / sizeof(rows[0]))

static void usage(FILE *out)
{
    fputs("usage: kvpoold fsck DIRECTORY [--data] [--json]\n"
          "Reads what a disk tier (setting disk-directory) has, and changes nothing.\n"
          "  --data   read and verify every block, too\n"
          "  --json   a line of JSON for each problem, and one for the numbers\n"
          "Exit status: 0 all is well, 1 there are problems (what is spoilt is never served: a "
          "miss),\n"
          "2 it cannot be read, or a daemon has it.\n",
          out);
}

static void report_problem(void *context, const struct disk_problem *problem)
{
    struct report *report = context;
    char line[LINE_BYTES];
    struct text text = text_init(line, sizeof(line));

    report->num_problems++;
    if (!report->is_json) {
        printf("%s %u/%u: %s\n", problem->part, problem->slot.granule, problem->slot.index,
               problem->text);
        return;
    }
    text_add(&text, "{\"part\":");
    text_add_json(&text, problem->part);
    text_printf(&text, ",\"granule\":%u,\"index\":%u,\"problem\":", problem->slot.granule,
                problem->slot.index);
    text_add_json(&text, problem->text);
    text_add(&text, "}");
    puts(line);
}

static uint64_t number_of(const struct disk_check *check, const struct row *row)
{
    uint64_t number;

    memcpy(&number, (const char *)check + row->offset, sizeof(number));
    return number;
}

static void print_numbers(const struct disk_check *check, bool is_json)
{
    for (size_t at = 0; at < NUM_ROWS; at++) {
        unsigned long long number = number_of(check, &rows[at]);
        if (is_json)
            printf("%s\"%s\":%llu", at > 0 ? "," : "{", rows[at].name, number);
        else
            printf("%16llu %s\n", number, rows[at].text);
    }
    fputs(is_json ? "}\n" : "", stdout);
}

static int fail(bool is_json, const char *error)
{
    char line[LINE_BYTES];
    struct text text = text_init(line, sizeof(line));

    if (is_json) {
        text_add(&text, "{\"error\":");
        text_add_json(&text, error);
        text_add(&text, "}");
        puts(line);
    } else {
        fprintf(stderr, "kvpoold fsck: %s\n", error);
    }
    return FSCK_FAILED;
}

int fsck_command(int argc, char **argv)
{
    static const struct option options[] = {{"data", no_argument, NULL, 'd'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct report report = {0};
    struct disk_check check;
    char error[DISK_ERROR_BYTES];
    bool with_data = false;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        with_data |= option == 'd';
        report.is_json |= option == 'j';
        if (option == 'h' || option == '?') {
            usage(option == 'h' ? stdout : stderr);
            return option == 'h' ? FSCK_FINE : FSCK_FAILED;
        }
    }
    if (optind + 1 != argc) {
        usage(stderr);
        return FSCK_FAILED;
    }
    if (disk_check(argv[optind], with_data, report_problem, &report, &check, error))
        return fail(report.is_json, error);
    print_numbers(&check, report.is_json);
    bool has_problem = report.num_problems > 0;
    for (size_t at = 0; at < NUM_ROWS; at++)
        has_problem |= rows[at].is_problem && number_of(&check, &rows[at]) > 0;
    return has_problem ? FSCK_PROBLEMS : FSCK_FINE;
}
