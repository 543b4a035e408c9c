/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the program of the conformance suite: the same cases against any CUDA driver, simulated or
 * real, one line each. Does not: contain a case.
 *
 *   driver_conformance [sim | LIBRARY] [--json FILE] [--only PART_OF_NAME] [--hardware FILE]
 *                      [--skips FILE]
 *   driver_conformance [sim | LIBRARY] --case NAME
 *   driver_conformance --list
 *   driver_conformance --quotes CUDA_H
 *
 * Exit 0: none failed; 1: one failed; 2: wrong arguments; 77: no such driver, or the one case was
 * skipped. --skips: a file with lines "CASE PROFILE..."; exactly the cases that name
 * the simulated driver's profile (FALLOW_SIMCUDA) must be skipped. --hardware: a file with results of GPUs
 * (hardware.txt); the simulated driver fails a case that one of them contradicts. --case runs the
 * case of that name. --list lists the cases for real drivers, each after "calm" or "risky"; a
 * risky case may leave a driver or a device unusable. --quotes checks that the given cuda.h
 * contains the sentence of each case. */
#include "conformance.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "trace/io/jsonwriter.h"

#define CASE_SECONDS 60

static struct conformance_case *cases, **cases_end = &cases;

void conformance_add(struct conformance_case *c)
{
    *cases_end = c;
    cases_end = &c->next;
}

/* In every case that may run on a real driver. */
#define EACH_SHARED(c)                                               \
    for (struct conformance_case *c = cases; c != NULL; c = c->next) \
        if (c->quote != NULL)

/* Write "module.name" to a buffer of 160 bytes and return it. */
static const char *full_name(const struct conformance_case *c, char name[160])
{
    snprintf(name, 160, "%s.%s", c->module, c->name);
    return name;
}

struct tally {
    unsigned passed, failed, skipped;
    unsigned from_header, seen;
    uint64_t calls[256]; /* simulated driver: by entry point, over all cases */
    FILE *json;
    bool has_rows;
    char *skips; /* the text of that file, or NULL */
};

static const char *const entry_names[] = {
#define X(need, symbol, since, before, parameters) #symbol,
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
};
#define ENTRIES (sizeof entry_names / sizeof *entry_names)
_Static_assert(ENTRIES <= 256, "tally.calls holds every entry point");

static char running[160];

static void say_and_die(int number)
{
    static const char text[] = ": ended by a signal or took too long\n";
    if (write(2, running, strlen(running)) < 0 || write(2, text, sizeof text - 1) < 0) {
        _exit(1); /* nobody reads on */
    }
    signal(number, SIG_DFL);
    raise(number);
}

/* Return the source of a case's sentence. */
static const char *known_from(const struct conformance_case *c, const char *name)
{
    const struct conformance_sight *sight = conformance_sight_of(name);
    if (sight != NULL && !sight->is_contradicted) {
        return sight->where;
    }
    return c->quote != NULL ? "from the header" : "simulated only";
}

static void write_row(struct tally *tally, const struct conformance_case *c, const char *name,
                      const char *result, const char *why)
{
    FILE *out = tally->json;
    if (out == NULL) {
        return;
    }
    fputs(tally->has_rows ? ",\n  {\"case\":" : "\n  {\"case\":", out);
    tally->has_rows = true;
    fputc('"', out);
    fprintf(out, "%s\",\"result\":\"%s\",\"known\":", name, result);
    flw_json_print_text(out, known_from(c, name));
    fputs(",\"quote\":", out);
    flw_json_print_text(out, c->quote != NULL ? c->quote : "");
    fputs(",\"why\":", out);
    flw_json_print_text(out, why != NULL ? why : "");
    fputc('}', out);
}

static bool make_bed(struct bed *b)
{
    const struct flw_driver *cu = b->cu;
    b->failures = 0;
    b->object_count = 0;
    b->skip = NULL;
    b->message[0] = '\0';
    if (b->is_sim) {
        b->sim.play(b->profile, NULL, 0); /* a case may have chosen another */
        flw_sim_config config = flw_sim_config_default(1);
        config.schedule = FLW_SIM_HELD;
        config.backed = 1;
        config.check = 1;
        config.device_count = 2;
        b->context = flw_sim_begin(&b->sim, &config);
        return true;
    }
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return cu->cuDevicePrimaryCtxRetain(&b->context, b->device) == CUDA_SUCCESS &&
           cu->cuCtxSetCurrent(b->context) == CUDA_SUCCESS &&
           cu->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
}

static void clear_bed(struct bed *b, struct tally *tally)
{
    bed_release(b);
    if (!b->is_sim) {
        OK(b->cu->cuCtxSynchronize());
        OK(b->cu->cuCtxSetCurrent(NULL));
        OK(b->cu->cuDevicePrimaryCtxRelease_v2(b->device));
        return;
    }
    for (size_t i = 0; i < ENTRIES; i++) {
        tally->calls[i] += b->sim.call_count(entry_names[i]);
    }
}

/* True if the file has a line of the case that names the profile. */
static bool may_skip(const struct bed *b, const char *skips, const char *name)
{
    char begin[256], profile[sizeof b->profile + 1];
    snprintf(begin, sizeof begin, "\n%s ", name);
    size_t length = (size_t)snprintf(profile, sizeof profile, " %s", b->profile);
    const char *line = strstr(skips, begin);
    const char *end = line != NULL ? line + 1 + strcspn(line + 1, "\n") : NULL;
    const char *found = line != NULL ? strstr(line, profile) : NULL;
    while (found != NULL && found < end && found[length] != ' ' && found[length] != '\n') {
        found = strstr(found + 1, profile);
    }
    return found != NULL && found < end;
}

/* Compare the skipped cases with the expected ones. */
static void judge_skip(struct bed *b, const char *skips)
{
    bool is_skipped = b->skip != NULL, is_listed = may_skip(b, skips, running);
    if (b->failures == 0 && is_skipped != is_listed) {
        char why[sizeof b->message];
        snprintf(why, sizeof why, "%s", is_skipped ? b->skip : "it ran");
        snprintf(b->message, sizeof b->message, "%s in the list of skipped cases, but: %.400s",
                 is_listed ? "it is" : "it is not", why);
        b->failures = 1;
    }
}

/* Fail a case that hardware contradicts, even if the simulated driver passes it. */
static void judge_sight(struct bed *b, const struct conformance_sight *sight)
{
    if (sight->is_contradicted) {
        b->failures++;
        snprintf(
            b->message, sizeof b->message,
            "a GPU contradicts it (%s): mend the model and the case, then take its line out of "
            "hardware.txt",
            sight->where);
    }
}

static void run_case(struct bed *b, const struct conformance_case *c, struct tally *tally)
{
    full_name(c, running);
    alarm(CASE_SECONDS);
    if (make_bed(b)) {
        c->run(b);
        clear_bed(b, tally);
    } else {
        b->failures = 1;
        snprintf(b->message, sizeof b->message, "the primary context cannot be had any more");
    }
    alarm(0);
    if (tally->skips != NULL) {
        judge_skip(b, tally->skips);
    }
    const struct conformance_sight *sight = conformance_sight_of(running);
    if (b->is_sim && sight != NULL) {
        judge_sight(b, sight);
    }
    const char *result = b->failures > 0 ? "fail" : b->skip != NULL ? "skip" : "pass";
    const char *why = b->failures > 0 ? b->message : b->skip;
    printf("%s  %s%s%s\n", result, running, why != NULL ? "  -- " : "", why != NULL ? why : "");
    tally->failed += b->failures > 0;
    tally->skipped += b->failures == 0 && b->skip != NULL;
    tally->passed += b->failures == 0 && b->skip == NULL;
    tally->from_header += c->quote != NULL && sight == NULL;
    tally->seen += sight != NULL && !sight->is_contradicted;
    write_row(tally, c, running, result, why);
}

/* Run the cases that are for real drivers, or those that are not: calm ones first. */
static void run_cases(struct bed *b, bool is_shared, const char *only, struct tally *tally)
{
    char name[160];
    for (int risky = 0; risky < 2; risky++) {
        for (struct conformance_case *c = cases; c != NULL; c = c->next) {
            if ((c->quote != NULL) == is_shared && c->is_risky == risky &&
                (only == NULL || strstr(full_name(c, name), only) != NULL)) {
                run_case(b, c, tally);
            }
        }
    }
}

static const struct conformance_case *find_case(const char *wanted)
{
    char name[160];
    EACH_SHARED(c)
    {
        if (strcmp(full_name(c, name), wanted) == 0) {
            return c;
        }
    }
    return NULL;
}

bool conformance_is_case(const char *name)
{
    return find_case(name) != NULL;
}

static int run_one(struct bed *b, const char *name, struct tally *tally)
{
    const struct conformance_case *c = find_case(name);
    if (c == NULL) {
        fprintf(stderr, "driver_conformance: there is no case '%s'; --list names them\n", name);
        return 2;
    }
    run_case(b, c, tally);
    return tally->failed > 0 ? 1 : tally->skipped > 0 ? 77 : 0;
}

/* The simulated driver counts: an entry point that no case calls is a hole in the suite. */
static void check_coverage(struct tally *tally)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        if (tally->calls[i] == 0) {
            printf("fail  coverage.%s  -- no case calls it\n", entry_names[i]);
            tally->failed++;
        }
    }
}

/* ---- the sentences ---- */

/* A whole file; NULL when unreadable. */
static char *read_text(const char *path)
{
    FILE *in = fopen(path, "r");
    if (in == NULL || fseek(in, 0, SEEK_END) != 0) {
        return NULL;
    }
    long bytes = ftell(in);
    rewind(in);
    char *text = calloc(1, (size_t)bytes + 1);
    if (text != NULL && fread(text, 1, (size_t)bytes, in) != (size_t)bytes) {
        free(text);
        text = NULL;
    }
    fclose(in);
    return text;
}

/* Words of cuda.h without comment stars and markup, one space between; NULL when unreadable. */
static char *read_words(const char *path)
{
    char *raw = read_text(path);
    size_t got = raw != NULL ? strlen(raw) : 0, n = 0;
    char *words = raw != NULL ? calloc(1, got + 2) : NULL;
    for (size_t i = 0; words != NULL && i < got; i++) {
        char c = raw[i];
        bool is_markup = c == '\\' && i + 2 < got &&
                         (strncmp(raw + i, "\\p ", 3) == 0 || strncmp(raw + i, "\\e ", 3) == 0);
        if (is_markup) {
            i += 2;
        } else if (c == ':' && raw[i + 1] == ':') {
            i++;
        } else if (isspace((unsigned char)c) || (c == '*' && isspace((unsigned char)raw[i + 1]))) {
            if (n > 0 && words[n - 1] != ' ') {
                words[n++] = ' ';
            }
        } else {
            words[n++] = c;
        }
    }
    free(raw);
    return words;
}

static int check_quotes(const char *path)
{
    char *words = read_words(path);
    unsigned missing = 0, count = 0;
    if (words == NULL) {
        fprintf(stderr, "driver_conformance: cannot read %s\n", path);
        return 2;
    }
    EACH_SHARED(c)
    {
        count++;
        if (strstr(words, c->quote) == NULL) {
            printf("not in %s: %s.%s: \"%s\"\n", path, c->module, c->name, c->quote);
            missing++;
        }
    }
    free(words);
    printf("%u sentences, %u not found\n", count, missing);
    return missing > 0 || count == 0;
}

/* ---- the program ---- */

struct options {
    const char *driver, *json, *only, *name, *quotes, *hardware, *skips;
    int import_file; /* -1: this is the main process */
    bool is_list;
};

static bool parse(int argc, char **argv, struct options *options)
{
    const char *import = NULL;
    *options = (struct options){.import_file = -1};
    const struct {
        const char *word, **value;
    } rows[] = {{"--json", &options->json},     {"--only", &options->only},
                {"--case", &options->name},     {"--hardware", &options->hardware},
                {"--quotes", &options->quotes}, {"--skips", &options->skips},
                {"--import", &import}}; /* --import: from this program */
    const size_t count = sizeof rows / sizeof *rows;
    for (int i = 1; i < argc; i++) {
        size_t r = 0;
        while (r < count && (strcmp(argv[i], rows[r].word) != 0 || i + 1 == argc)) {
            r++;
        }
        if (r < count) {
            *rows[r].value = argv[++i];
        } else if (strcmp(argv[i], "--list") == 0) {
            options->is_list = true;
        } else if (argv[i][0] != '-' && options->driver == NULL) {
            options->driver = argv[i];
        } else {
            fprintf(stderr,
                    "driver_conformance: cannot use '%s'\nusage: driver_conformance "
                    "[sim | LIBRARY] [--json FILE] [--only NAME] [--case NAME] [--hardware FILE] "
                    "[--skips FILE] [--list] [--quotes CUDA_H]\n",
                    argv[i]);
            return false;
        }
    }
    options->import_file = import != NULL ? (int)strtol(import, NULL, 10) : -1;
    return true;
}

static void write_head(struct tally *tally, const struct bed *b)
{
    char name[128] = "?";
    char date[40] = "";
    time_t now = time(NULL);
    struct tm broken;
    b->cu->cuDeviceGetName(name, sizeof name, b->device);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &broken));
    printf("driver %d.%d, device %s%s%s%s\n", b->cu->version / 1000, b->cu->version % 1000 / 10,
           name, b->is_sim ? " (simulated device)" : "", b->profile[0] != '\0' ? ", profile " : "",
           b->profile);
    if (tally->json != NULL) {
        fprintf(tally->json, "{\"simulated\":%s,\"driver_version\":%d,\"date\":\"%s\",\"device\":",
                b->is_sim ? "true" : "false", b->cu->version, date);
        flw_json_print_text(tally->json, name);
        fputs(",\"cases\":[", tally->json);
    }
}

static int run_all(struct bed *b, const struct options *options, struct tally *tally)
{
    write_head(tally, b);
    run_cases(b, true, options->only, tally);
    if (b->is_sim) {
        if (options->only == NULL && b->profile[0] == '\0') {
            check_coverage(tally); /* before the faults, which strike every entry point */
        }
        run_cases(b, false, options->only, tally);
    }
    printf("%u cases known from the header, %u seen on hardware\n", tally->from_header,
           tally->seen);
    printf("%u passed, %u failed, %u skipped\n", tally->passed, tally->failed, tally->skipped);
    if (tally->json != NULL) {
        fprintf(tally->json,
                "\n],\"from_the_header\":%u,\"seen_on_hardware\":%u,\"passed\":%u,\"failed\":%u,"
                "\"skipped\":%u}\n",
                tally->from_header, tally->seen, tally->passed, tally->failed, tally->skipped);
    }
    return tally->failed > 0;
}

/* Complete or absent. */
static int run_with_file(struct bed *b, const struct options *options, struct tally *tally)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.part", options->json);
    tally->json = fopen(path, "w");
    if (tally->json == NULL) {
        fprintf(stderr, "driver_conformance: cannot write %s\n", path);
        return 2;
    }
    int status = run_all(b, options, tally);
    bool is_bad = ferror(tally->json) != 0;
    is_bad = fclose(tally->json) != 0 || is_bad;
    if (is_bad || rename(path, options->json) != 0) {
        fprintf(stderr, "driver_conformance: cannot write %s\n", options->json);
        remove(path);
        return 2;
    }
    return status;
}

int main(int argc, char **argv)
{
    struct options options;
    struct bed bed = {.program = argv[0]};
    struct tally tally = {0};
    char message[FLW_DRIVER_MESSAGE_BYTES];
    if (!parse(argc, argv, &options)) {
        return 2;
    }
    if (options.is_list) {
        EACH_SHARED(c)
        {
            printf("%s %s.%s\n", c->is_risky ? "risky" : "calm", c->module, c->name);
        }
        return 0;
    }
    if (options.quotes != NULL) {
        return check_quotes(options.quotes);
    }
    if (options.hardware != NULL && !conformance_sights_read(options.hardware)) {
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    bed.driver_name = options.driver;
    if (flw_driver_open(&bed.sim.cu, options.driver, message) != FALLOW_OK) {
        fprintf(stderr, "driver_conformance: %s\n", message);
        return 77;
    }
    bed.cu = &bed.sim.cu;
    bed.is_sim = flw_sim_find_controls(&bed.sim);
    if (!bed.is_sim && bed.sim.reset != NULL) {
        fprintf(stderr, "driver_conformance: this simulated driver lacks a control: rebuild it\n");
        return 1;
    }
    if (bed.is_sim) {
        snprintf(bed.profile, sizeof bed.profile, "%s", bed.sim.played());
    }
    if (options.skips != NULL && (tally.skips = read_text(options.skips)) == NULL) {
        fprintf(stderr, "driver_conformance: cannot read %s\n", options.skips);
        return 2;
    }
    if (bed.cu->cuDeviceGet(&bed.device, 0) != CUDA_SUCCESS) {
        fprintf(stderr, "driver_conformance: the driver shows no device\n");
        return 77;
    }
    signal(SIGALRM, say_and_die);
    signal(SIGSEGV, say_and_die);
    signal(SIGABRT, say_and_die);
    int status = options.import_file >= 0 ? conformance_import_child(&bed, options.import_file)
                 : options.name != NULL   ? run_one(&bed, options.name, &tally)
                 : options.json != NULL   ? run_with_file(&bed, &options, &tally)
                                          : run_all(&bed, &options, &tally);
    flw_driver_close(&bed.sim.cu);
    free(tally.skips);
    return status;
}
