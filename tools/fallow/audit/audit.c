/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command line of `fallow audit`: running the command, the folder of the pages, writing the report.
 * Does not: observe the program (libfallow-preload.so).
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/io/output.h"

#include "audit/findings.h"
#include "common/command.h"
#include "common/draft.h"
#include "common/launch.h"
#include "common/options.h"
#include "common/terminal.h"

#define PAGE_NAME         "page"
#define BANDWIDTH_DEFAULT "3000"
#define POISON_DEFAULT    0xff
#define SITE_DIGITS       12
#define FOLDER_BYTES      1024

static const char help[] =
    "usage: fallow audit [OPTIONS] -- COMMAND [ARGUMENTS]\n"
    "\n"
    "Run a CUDA program and list its zero-fills of memory that nothing had touched since its allocation:\n"
    "every cuMemset and every launch of a known fill kernel, by call site. Such a fill is only a\n"
    "candidate for removal: the program may need the zeros. A trial writes other bytes at one site, so\n"
    "that you can see whether the results change.\n"
    "\n"
    "  --trial SITE       write poison instead of zeros at a site of an earlier audit\n"
    "  --poison BYTE      byte of a trial (0xff)\n"
    "  --bandwidth GB/s   bandwidth for estimated times, which are of writing alone (" BANDWIDTH_DEFAULT
    ")\n"
    "  --mode MODE        audit (the driver's own allocation; the default), cache or strict\n"
    "  --json             print the report as one JSON object: bytes, nanoseconds, counts\n"
    "  -o, --output FILE  write the report to FILE (standard output, after the command's own)\n"
    "  --set KEY:VALUE    any other setting of FALLOW\n"
    "  --library FILE     path of libfallow-preload.so, if it is not beside this program\n"
    "\n"
    "exit status: COMMAND's; also 1: there is no report, or the site of the trial was not reached; 2: the\n"
    "command line is wrong; 126, 127: COMMAND cannot be run, or does not exist\n"
    "\n"
    "example: fallow audit -- ./program\n";

struct order {
    const char *output, *library;
    struct flw_findings findings;
    struct flw_settings_text settings;
    bool is_json;
};

/* ---- values */

static bool take_site(void *member, const char *text)
{
    char *end = NULL;
    uint64_t *out_id = member;
    *out_id = strtoull(text, &end, 16);
    return (strlen(text) == SITE_DIGITS && strspn(text, "0123456789abcdef") == SITE_DIGITS &&
            *out_id != 0) ||
           flw_complain("audit: --trial '%s' is not a site: give the 12 digits of 0-9 a-f that "
                        "an audit printed",
                        text);
}

static bool take_bandwidth(void *member, const char *text)
{
    char *end = NULL;
    double *out = member;
    *out = strtod(text, &end);
    return (end != text && *end == '\0' && *out > 0 && *out <= 1e9) ||
           flw_complain("audit: --bandwidth '%s': it takes GB/s, such as 4800", text);
}

static bool take_poison(void *member, const char *text)
{
    const char *rest;
    unsigned *out = member;
    bool is_right = flw_parse_byte(text, &rest, out) && *rest == '\0' && *out != 0;
    return is_right ||
           flw_complain("audit: --poison '%s': it takes a byte that is not zero, such as 0xff",
                        text);
}

static bool take_mode(void *member, const char *text)
{
    static const char *const modes[] = {"audit", "cache", "strict", NULL};
    if (!flw_is_one_of(text, modes)) {
        return flw_complain("audit: there is no mode '%s'; there are audit, cache and strict",
                            text);
    }
    return flw_settings_put(member, "mode", text);
}

#define OPTION(...) FLW_OPTION(struct order, __VA_ARGS__)

static const struct flw_option option_list[] = {
    {OPTION("trial", TAKE, findings.trial_id), .take = take_site},
    {OPTION("poison", TAKE, findings.poison), .take = take_poison},
    {OPTION("bandwidth", TAKE, findings.bandwidth_gbs), .take = take_bandwidth},
    {OPTION("mode", TAKE, settings), .take = take_mode},
    {OPTION("json", SET, is_json)},
    {OPTION("output", TEXT, output), .letter = 'o'},
    {OPTION("set", TAKE, settings), .take = flw_settings_take},
    {OPTION("library", TEXT, library)},
    {.name = NULL}};

/* ---- the folder of the pages */

static bool make_folder(char *path, size_t room)
{
    const char *place = getenv("TMPDIR");
    place = place != NULL && place[0] == '/' ? place : "/tmp";
    int length = snprintf(path, room, "%s/fallow-audit-XXXXXX", place);
    errno = ENAMETOOLONG;
    return (length >= 0 && (size_t)length < room && mkdtemp(path) != NULL) ||
           flw_complain("audit: cannot create a folder in %s: %s; set TMPDIR to another folder",
                        place, strerror(errno));
}

static void remove_page(void *context, const char *path)
{
    (void)context;
    (void)unlink(path);
}

/* ---- the report */

static bool write_report(struct order *order)
{
    struct flw_draft draft;
    if (!order->is_json && flw_output_is_stdout(order->output)) {
        FILE *out = flw_terminal_open(false);
        flw_findings_print(out, &order->findings);
        flw_terminal_close(out);
        return flw_flush_output(); /* at once: the command's signal may end this program too */
    }
    flw_draft_begin(&draft, "audit: ");
    (order->is_json ? flw_findings_print_json : flw_findings_print)(draft.file, &order->findings);
    return flw_draft_end(&draft, true, order->output);
}

/* Complain that the site of the trial was not reached, with a list of the sites that were. */
static bool miss_site(const struct flw_findings *findings)
{
    char known[16 * (SITE_DIGITS + 2) + 8] = "none";
    size_t used = 0;
    for (size_t i = 0; i < findings->site_count && i < 16; i++) {
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%012" PRIx64,
                                 i > 0 ? ", " : "", findings->sites[i].site.id);
    }
    return flw_complain("audit: no candidate was found at the site on trial, %012" PRIx64
                        "; there were candidates at: %s%s",
                        findings->trial_id, known, findings->site_count > 16 ? ", ..." : "");
}

/* Print the report. A program without allocations leaves no findings file but still gets a report. */
static bool tell(struct order *order, const struct flw_launch *launch, const char *folder)
{
    struct flw_findings *findings = &order->findings;
    bool is_explained = flw_launch_explain(launch);
    flw_findings_read(findings, folder, PAGE_NAME);
    if (findings->process_count == 0) {
        if (is_explained) {
            return false;
        }
        if (flw_launch_has(launch, FLW_RUNPAGE_UNKEPT)) {
            return flw_complain(
                "audit: no findings were written to %s: its disk may be full; set TMPDIR "
                "to another folder",
                folder);
        }
        if (flw_launch_has(launch, FLW_RUNPAGE_OFF)) {
            return flw_complain("audit: Fallow was off, so nothing was audited");
        }
    }
    flw_findings_sort(findings);
    bool is_told = write_report(order);
    bool is_met =
        findings->trial_id == 0 || flw_findings_site(findings, findings->trial_id) != NULL;
    return is_met ? is_told : miss_site(findings);
}

static bool put_settings(struct order *order, const char *folder)
{
    char prefix[FOLDER_BYTES + sizeof PAGE_NAME], trial[SITE_DIGITS + 8];
    snprintf(prefix, sizeof prefix, "%s/%s", folder, PAGE_NAME);
    snprintf(trial, sizeof trial, "%012" PRIx64 "=0x%02x", order->findings.trial_id,
             order->findings.poison);
    return flw_settings_put(&order->settings, "audit", prefix) &&
           flw_settings_put(&order->settings, "trial",
                            order->findings.trial_id != 0 ? trial : NULL);
}

static int carry_out(struct order *order, char **command)
{
    struct flw_launch launch = {.subcommand = "audit",
                                .command = command,
                                .library = order->library,
                                .settings = &order->settings};
    char folder[FOLDER_BYTES];
    if (!make_folder(folder, sizeof folder)) {
        return FLW_EXIT_FAILED;
    }
    int code = FLW_EXIT_USAGE;
    bool is_told = false;
    if (put_settings(order, folder)) {
        code = flw_launch(&launch);
        if (code == 0) {
            order->findings.exit_code = launch.exit_code;
            order->findings.signal = launch.signal;
            is_told = tell(order, &launch, folder);
        }
    }
    flw_findings_visit(folder, PAGE_NAME, remove_page, NULL);
    (void)rmdir(folder);
    flw_findings_finish(&order->findings);
    if (code == 0 && (is_told || launch.exit_code != 0 || launch.signal != 0)) {
        return flw_launch_end_as(&launch); /* may not return */
    }
    return code == 0 ? FLW_EXIT_FAILED : code;
}

int flw_command_audit(int argc, char **argv)
{
    struct order order = {
        .output = "-",
        .findings = {.bandwidth_gbs = strtod(BANDWIDTH_DEFAULT, NULL), .poison = POISON_DEFAULT}};
    if (!flw_settings_inherit(&order.settings) ||
        !flw_settings_put(&order.settings, "mode", "audit")) {
        return FLW_EXIT_USAGE;
    }
    int code = flw_options_read(
        &(struct flw_options){
            .command = "audit", .help = help, .list = option_list, .ends_at_operand = true},
        &order, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (optind == argc) {
        return flw_refuse(FLW_EXIT_USAGE, "audit: no command; give one after --");
    }
    return carry_out(&order, argv + optind);
}
