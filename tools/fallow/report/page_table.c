/* SPDX-License-Identifier: Apache-2.0 */
#include "report/page_table.h"

#include <string.h>

#include "base/bits.h"
#include "report/svg.h"
#include "trace/trace/trace.h"

/* On a narrow screen a row becomes a card, and a cell says itself what it is of (page.css). */
struct table {
    FILE *out;
    const char *headings; /* with a bar between two */
    const char *next;     /* of the cell to come */
};

/* Puts the next heading into `out`, cut, and goes on to the one after it. */
static void take_heading(struct table *table, char out[FLW_SHEET_NAME_BYTES])
{
    size_t length = strcspn(table->next, "|");
    snprintf(out, FLW_SHEET_NAME_BYTES, "%.*s", (int)length, table->next);
    table->next += length + (table->next[length] == '|');
}

static struct table begin_table(FILE *out, const char *headings)
{
    struct table table = {out, headings, headings};
    fputs("<div class=scroll tabindex=0><table class=cards><thead><tr>", out);
    while (*table.next != '\0') {
        char heading[FLW_SHEET_NAME_BYTES];
        take_heading(&table, heading);
        fputs("<th scope=col>", out);
        flw_svg_escape(out, heading);
        fputs("</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
    return table;
}

/* `link` may be NULL. */
static void begin_linked_row(struct table *table, const char *name, const char *link)
{
    char heading[FLW_SHEET_NAME_BYTES];
    table->next = table->headings;
    take_heading(table, heading);
    fputs("<tr><th scope=row>", table->out);
    if (link != NULL) {
        fputs("<a href=\"", table->out);
        flw_svg_escape(table->out, link);
        fputs("\">", table->out);
    }
    flw_svg_escape(table->out, name);
    fputs(link != NULL ? "</a></th>" : "</th>", table->out);
}

static void begin_row(struct table *table, const char *name)
{
    begin_linked_row(table, name, NULL);
}

static void end_table(const struct table *table)
{
    fputs("</tbody></table></div>\n", table->out);
}

static void begin_cell(struct table *table)
{
    char heading[FLW_SHEET_NAME_BYTES];
    take_heading(table, heading);
    fputs("<td data-of=\"", table->out);
    flw_svg_escape(table->out, heading);
    fputs("\">", table->out);
}

static void write_text_cell(struct table *table, const char *text)
{
    begin_cell(table);
    fprintf(table->out, "%s</td>", text);
}

static void write_cell(struct table *table, enum flw_svg_unit unit, uint64_t value)
{
    char number[FLW_SVG_NUMBER_BYTES];
    write_text_cell(
        table, value == FLW_NOT_APPLICABLE ? "-" : flw_svg_format(number, unit, (double)value));
}

static void write_real_cell(struct table *table, enum flw_svg_unit unit, bool is_known,
                            double value)
{
    char number[FLW_SVG_NUMBER_BYTES];
    write_text_cell(table, is_known ? flw_svg_format(number, unit, value) : "-");
}

void flw_page_table_policies(const struct flw_sheet *sheet, FILE *out)
{
    struct table table =
        begin_table(out, "policy|peak requested|peak reserved|ratio|fragmentation|failed|grow ops|"
                         "driver calls|events|steals|waits|p50|p99|p99.9");
    for (size_t i = 0; i < sheet->policy_count; i++) {
        const struct flw_sheet_policy *policy = &sheet->policies[i];
        const struct flw_run_result *result = policy->result;
        begin_row(&table, policy->label);
        if (!result->has_run) {
            fputs("<td colspan=13>", out);
            flw_svg_escape(out, result->message);
            fputs("</td></tr>\n", out);
            continue;
        }
        write_cell(&table, FLW_SVG_BYTES, result->peak_requested_bytes);
        write_cell(&table, FLW_SVG_BYTES, result->statistics.peak_reserved_bytes);
        write_real_cell(&table, FLW_SVG_RATIO, flw_sheet_ratio(policy) > 0,
                        flw_sheet_ratio(policy));
        write_real_cell(&table, FLW_SVG_RATIO, policy->has_series && policy->frame_count != 0,
                        policy->fragmentation);
        write_cell(&table, FLW_SVG_COUNT, result->failure_count);
        write_cell(&table, FLW_SVG_COUNT, result->statistics.grow_count);
        write_cell(&table, FLW_SVG_COUNT, result->statistics.driver_call_count);
        write_cell(&table, FLW_SVG_COUNT, result->statistics.event_count);
        write_cell(&table, FLW_SVG_COUNT, result->statistics.steal_count);
        write_cell(&table, FLW_SVG_COUNT, result->statistics.wait_count);
        write_real_cell(&table, FLW_SVG_NS, result->has_times, result->all_times.p50_ns);
        write_real_cell(&table, FLW_SVG_NS, result->has_times, result->all_times.p99_ns);
        write_real_cell(&table, FLW_SVG_NS, result->has_times, result->all_times.p999_ns);
        fputs("</tr>\n", out);
    }
    end_table(&table);
}

/* ---- more numbers ---- */

static void write_memory_cells(const struct flw_sheet_policy *policy, struct table *table)
{
    const struct flw_run_result *result = policy->result;
    const struct flw_sheet_frame *frame = flw_sheet_frame(policy, "peak reserved");
    bool has_series = policy->peak_reserved_op != FLW_UNKNOWN;
    uint64_t requested = has_series ? policy->requested_at_peak_bytes : FLW_UNKNOWN;
    uint64_t block = has_series ? policy->block_at_peak_bytes : FLW_UNKNOWN;
    bool has_holes = frame != NULL;
    write_cell(table, FLW_SVG_BYTES, requested);
    write_cell(table, FLW_SVG_BYTES, flw_sheet_subtract(block, requested));
    write_cell(table, FLW_SVG_BYTES,
               flw_sheet_subtract(result->statistics.peak_reserved_bytes, block));
    write_cell(table, FLW_SVG_COUNT,
               has_holes ? frame->segment_count + frame->left_out_segment_count : FLW_UNKNOWN);
    write_cell(table, FLW_SVG_COUNT,
               has_holes ? frame->block_count + frame->left_out_count : FLW_UNKNOWN);
    write_cell(table, FLW_SVG_COUNT, has_holes ? frame->hole_count : FLW_UNKNOWN);
    write_cell(table, FLW_SVG_BYTES, has_holes ? frame->largest_hole_bytes : FLW_UNKNOWN);
    write_real_cell(table, FLW_SVG_RATIO, has_holes, policy->pytorch_fragmentation);
    write_cell(table, FLW_SVG_BYTES, has_series ? policy->end_reserved_bytes : FLW_UNKNOWN);
    write_real_cell(table, FLW_SVG_RATIO, policy->mean_ratio > 0, policy->mean_ratio);
}

static void write_work_cells(const struct flw_sheet_policy *policy, struct table *table)
{
    const struct flw_run_result *result = policy->result;
    const struct flw_policy_statistics *statistics = &result->statistics;
    write_cell(table, FLW_SVG_BYTES, result->account.given_bytes);
    write_cell(table, FLW_SVG_BYTES, result->account.returned_bytes);
    write_cell(table, FLW_SVG_NS, result->account.modelled_ns);
    write_cell(table, FLW_SVG_COUNT, statistics->hit_count);
    write_cell(table, FLW_SVG_COUNT, statistics->split_count);
    write_cell(table, FLW_SVG_COUNT, statistics->merge_count);
    write_cell(table, FLW_SVG_COUNT, statistics->remap_count);
    write_cell(table, FLW_SVG_COUNT, statistics->remap_wait_count);
    write_cell(table, FLW_SVG_BYTES, statistics->deferred_bytes);
}

static void write_time_cells(const struct flw_sheet_policy *policy, struct table *table)
{
    const struct flw_run_times *kinds[] = {&policy->result->alloc_times,
                                           &policy->result->free_times};
    for (size_t i = 0; i < 2; i++) {
        const double ns[] = {kinds[i]->mean_ns, kinds[i]->p50_ns,  kinds[i]->p90_ns,
                             kinds[i]->p99_ns,  kinds[i]->p999_ns, kinds[i]->max_ns};
        for (size_t q = 0; q < sizeof ns / sizeof *ns; q++) {
            write_real_cell(table, FLW_SVG_NS, kinds[i]->count != 0, ns[q]);
        }
    }
}

/* A row a policy that ran. */
static void write_more(const struct flw_sheet *sheet, const char *summary, const char *headings,
                       void (*write_cells)(const struct flw_sheet_policy *, struct table *),
                       FILE *out)
{
    fprintf(out, "<details><summary>%s</summary>", summary);
    struct table table = begin_table(out, headings);
    for (size_t i = 0; i < sheet->policy_count; i++) {
        const struct flw_sheet_policy *policy = &sheet->policies[i];
        if (policy->result->has_run) {
            begin_row(&table, policy->label);
            write_cells(policy, &table);
            fputs("</tr>\n", out);
        }
    }
    end_table(&table);
    fputs("</details>\n", out);
}

void flw_page_table_more(const struct flw_sheet *sheet, FILE *out)
{
    write_more(sheet, "More of the memory at the peak of reserved",
               "policy|requested then|rounding then|free then|segments|blocks|holes|largest hole|"
               "sum of hole\302\262 / reserved\302\262|reserved at the end|mean ratio",
               write_memory_cells, out);
    write_more(sheet, "More of the driver and of blocks",
               "policy|taken from the driver|released|driver time (model)|cache hits|splits|"
               "merges|remaps|remap waits|deferred",
               write_work_cells, out);
    write_more(sheet, "Times of allocations and frees apart",
               "policy|alloc mean|p50|p90|p99|p99.9|max|free mean|p50|p90|p99|p99.9|max",
               write_time_cells, out);
}

/* ---- owners and traces ---- */

static void write_spread(struct table *table, enum flw_svg_unit unit,
                         const struct flw_sheet_spread *spread)
{
    bool has_any = spread->count != 0;
    write_cell(table, unit, has_any ? spread->p50 : FLW_UNKNOWN);
    write_cell(table, unit, has_any ? spread->p90 : FLW_UNKNOWN);
    write_cell(table, unit, has_any ? spread->p99 : FLW_UNKNOWN);
    write_cell(table, unit, has_any ? spread->max : FLW_UNKNOWN);
}

void flw_page_table_owners(const struct flw_sheet *sheet, enum flw_sheet_kind kind, FILE *out)
{
    fputs("<details><summary>Numbers</summary>", out);
    struct table table = begin_table(
        out, "owner|bytes at the peak|blocks at the peak|blocks in all|size p50|p90|p99|max|"
             "life p50|p90|p99|max");
    for (size_t i = 0; i < sheet->category_count[kind]; i++) {
        const struct flw_sheet_category *category = &sheet->categories[kind][i];
        begin_row(&table, category->name);
        write_cell(&table, FLW_SVG_BYTES, category->at_peak_bytes);
        write_cell(&table, FLW_SVG_COUNT, category->at_peak_count);
        write_cell(&table, FLW_SVG_COUNT, category->sizes.count);
        write_spread(&table, FLW_SVG_BYTES, &category->sizes);
        write_spread(&table, FLW_SVG_COUNT, &category->life_ops);
        fputs("</tr>\n", out);
    }
    end_table(&table);
    fputs("<p class=hint>Lives are counted in operations, of blocks that were freed.</p></details>",
          out);
}

/* ---- who holds it at one moment ---- */

#define HOLDERS    20 /* rows */
#define BAR_PITCH  9
#define BAR_HEIGHT 18
#define BAR_LEAST  2.0 /* that something was left is seen; nothing is half as high */

static void write_share(struct table *table, uint64_t part, uint64_t whole)
{
    char share[16];
    snprintf(share, sizeof share, "%.1f %%",
             whole == 0 ? 0.0 : 100.0 * (double)part / (double)whole);
    write_text_cell(table, share);
}

/* How much each stretch left behind, as bars beside the one that left most. */
static void write_left(const struct flw_sheet *sheet, const struct flw_sheet_left *left,
                       struct table *table)
{
    FILE *out = table->out;
    char number[FLW_SVG_NUMBER_BYTES];
    uint64_t most = 1;
    for (size_t i = 0; i < sheet->stretch_count; i++) {
        most = flw_max(most, left->bytes[i]);
    }
    begin_cell(table);
    fprintf(out, "<svg class=left viewBox=\"0 0 %d %d\" width=%d height=%d role=img>",
            BAR_PITCH * FLW_SHEET_STRETCHES, BAR_HEIGHT, BAR_PITCH * FLW_SHEET_STRETCHES,
            BAR_HEIGHT);
    for (size_t i = 0; i < sheet->stretch_count; i++) {
        double height = BAR_HEIGHT * (double)left->bytes[i] / (double)most;
        if (height < BAR_LEAST) {
            height = left->bytes[i] == 0 ? BAR_LEAST / 2 : BAR_LEAST;
        }
        fprintf(out,
                "<rect x=%zu y=%.1f width=%d height=%.1f fill=currentColor><title>%s: %s</title>"
                "</rect>",
                i * BAR_PITCH, BAR_HEIGHT - height, BAR_PITCH - 2, height, sheet->stretches[i].name,
                flw_svg_format(number, FLW_SVG_BYTES, (double)left->bytes[i]));
    }
    fputs("</svg></td>", out);
}

static void write_holder(const struct flw_sheet *sheet, const struct flw_sheet_holding *holding,
                         const struct flw_sheet_owner *owner, const struct flw_sheet_left *left,
                         struct table *table)
{
    begin_row(table, owner->name);
    write_cell(table, FLW_SVG_BYTES, owner->bytes);
    write_cell(table, FLW_SVG_COUNT, owner->count);
    write_share(table, owner->bytes, holding->bytes);
    if (left != NULL) {
        write_left(sheet, left, table);
    }
    fputs("</tr>\n", table->out);
}

static void write_holding(const struct flw_sheet *sheet, const struct flw_sheet_holding *holding,
                          const char *headings, FILE *out)
{
    struct flw_sheet_left left = {{0}, {0}};
    struct flw_sheet_owner rest = {
        .name = "the rest", .bytes = holding->bytes, .count = holding->count};
    for (size_t i = 0; i < sheet->stretch_count; i++) {
        left.bytes[i] = sheet->stretches[i].left_bytes;
    }
    struct table table = begin_table(out, headings);
    for (size_t i = 0; i < holding->owner_count && i < HOLDERS; i++) {
        const struct flw_sheet_owner *owner = &holding->owners[i];
        const struct flw_sheet_left *of = holding->left == NULL ? NULL : &holding->left[i];
        write_holder(sheet, holding, owner, of, &table);
        rest.bytes -= owner->bytes;
        rest.count -= owner->count;
        for (size_t s = 0; of != NULL && s < sheet->stretch_count; s++) {
            left.bytes[s] -= of->bytes[s];
        }
    }
    if (rest.count != 0) {
        write_holder(sheet, holding, &rest, holding->left == NULL ? NULL : &left, &table);
    }
    end_table(&table);
}

void flw_page_table_survivors(const struct flw_sheet *sheet, FILE *out)
{
    bool has_steps = strncmp(sheet->stretches[0].name, "step", 4) == 0;
    write_holding(sheet, &sheet->holdings[FLW_SHEET_SURVIVORS],
                  has_steps ? "owner|bytes|blocks|share|left by steps"
                            : "owner|bytes|blocks|share|left by tenths",
                  out);
}

void flw_page_table_oom(const struct flw_sheet *sheet, FILE *out)
{
    write_holding(sheet, &sheet->holdings[FLW_SHEET_AT_OOM],
                  "owner when it ran out|bytes|blocks|share", out);
}

void flw_page_table_state(const struct flw_sheet *sheet, FILE *out)
{
    write_holding(sheet, &sheet->holdings[FLW_SHEET_AT_END], "owner|bytes|blocks|share", out);
}

void flw_page_table_answers(const struct flw_sheet_oom *oom, FILE *out)
{
    static const char *const outcomes[] = {[FLW_SHEET_SERVED] = "serves it",
                                           [FLW_SHEET_REFUSED] = "refuses it",
                                           [FLW_SHEET_REFUSED_BEFORE] =
                                               "is out of memory before it",
                                           [FLW_SHEET_NOT_ASKED] = "-"};
    struct table table = begin_table(out, "policy|that request|smallest limit");
    for (size_t i = 0; i < oom->answer_count; i++) {
        begin_row(&table, oom->answers[i].label);
        write_text_cell(&table, outcomes[oom->answers[i].outcome]);
        write_cell(&table, FLW_SVG_BYTES, oom->answers[i].smallest_limit_bytes);
        fputs("</tr>\n", out);
    }
    end_table(&table);
}

/* ---- several traces ---- */

#define GIB 1073741824.0

/* Of a table whose numbers are all GiB. */
static const char *format_gib(char out[FLW_SVG_NUMBER_BYTES], uint64_t bytes)
{
    double gib = (double)bytes / GIB;
    if (gib > 0 && gib < 0.001) {
        return "&lt; 0.001";
    }
    snprintf(out, FLW_SVG_NUMBER_BYTES, "%.*f", gib >= 100 ? 1 : gib >= 1 ? 2 : 3, gib);
    return out;
}

static bool holds_anything(const struct flw_sheet_policy *policy)
{
    return policy != NULL && policy->result->has_run &&
           policy->result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE;
}

static uint64_t peak_of(const struct flw_sheet_policy *policy)
{
    return holds_anything(policy) ? policy->result->statistics.peak_reserved_bytes : 0;
}

/* Return the bytes saved by the best policy against the reference, as comparisons count them. */
static uint64_t saved_by_best(const struct flw_sheet *sheet)
{
    bool is_held = holds_anything(sheet->reference);
    uint64_t held = is_held ? flw_sheet_held(sheet, sheet->reference) : 0;
    uint64_t least = peak_of(sheet->best);
    return least != 0 && least < held ? held - least : 0;
}

/* The one whose ratio is the highest of all. */
static const struct flw_sheet_policy *find_worst(const struct flw_sheet *sheets, size_t count)
{
    const struct flw_sheet_policy *worst = NULL;
    for (size_t i = 0; i < count; i++) {
        for (size_t p = 0; p < sheets[i].policy_count; p++) {
            const struct flw_sheet_policy *policy = &sheets[i].policies[p];
            double most = worst == NULL ? 1 : flw_sheet_ratio(worst);
            worst = holds_anything(policy) && flw_sheet_ratio(policy) > most ? policy : worst;
        }
    }
    return worst;
}

/* How much of all names is the same folders. */
static size_t common_folder(const struct flw_sheet *sheets, size_t count)
{
    size_t length = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        const char *name = sheets[i].trace->source, *first = sheets[0].trace->source;
        size_t same = 0, folder = 0;
        for (; name != NULL && first != NULL && name[same] != '\0' && name[same] == first[same];
             same++) {
            folder = name[same] == '/' ? same + 1 : folder;
        }
        length = flw_min(length, folder);
    }
    return length;
}

#define BAR_WIDTH 100

/* What is held, on one scale for all traces: requested, what the best holds beyond that, what it saves. */
static void write_bar(struct table *table, const struct flw_sheet *sheet, uint64_t most_bytes)
{
    FILE *out = table->out;
    char number[FLW_SVG_NUMBER_BYTES];
    uint64_t held = peak_of(sheet->reference), least = held - saved_by_best(sheet);
    uint64_t ends[] = {flw_min(sheet->trace->peak_requested_bytes, least), least, held};
    static const char *const styles[] = {"requested", "c7", "loss"};
    begin_cell(table);
    fprintf(out, "<svg width=%d height=%d role=img><title>%s GiB held</title>", BAR_WIDTH,
            BAR_HEIGHT, format_gib(number, held));
    for (size_t i = 0, begin = 0; i < sizeof ends / sizeof *ends; begin = ends[i++]) {
        double scale = BAR_WIDTH / (double)flw_max(1, most_bytes);
        if (ends[i] > begin) {
            fprintf(out, "<rect class=%s x=%.2f width=%.2f height=%d />", styles[i],
                    scale * (double)begin, scale * (double)(ends[i] - begin), BAR_HEIGHT);
        }
    }
    fputs("</svg></td>", out);
}

static void write_saved(struct table *table, const struct flw_sheet *sheet)
{
    char number[FLW_SVG_NUMBER_BYTES];
    uint64_t saved = saved_by_best(sheet);
    if (saved == 0) {
        write_text_cell(table, "-");
        return;
    }
    begin_cell(table);
    fprintf(table->out, "<span>%s<br><small>%.1f %%<br>",
            flw_svg_format(number, FLW_SVG_BYTES, (double)saved),
            100.0 * (double)saved / (double)flw_sheet_held(sheet, sheet->reference));
    flw_svg_escape(table->out, sheet->best->label);
    fputs("</small></span></td>", table->out);
}

static void write_peak(struct table *table, const struct flw_sheet_policy *policy, bool is_worst)
{
    char gib[FLW_SVG_NUMBER_BYTES], ratio[FLW_SVG_NUMBER_BYTES];
    if (!holds_anything(policy)) {
        write_text_cell(table, "-");
        return;
    }
    begin_cell(table);
    fprintf(table->out, "<span%s>%s<br><small>%s%s</small></span></td>",
            is_worst ? " class=worst" : "", format_gib(gib, peak_of(policy)),
            is_worst ? "worst " : "",
            flw_svg_format(ratio, FLW_SVG_RATIO, flw_sheet_ratio(policy)));
}

void flw_page_table_landing(const struct flw_sheet *sheets, size_t count, const char *const *links,
                            FILE *out)
{
    char number[FLW_SVG_NUMBER_BYTES], headings[(FLW_PLAN_POLICIES + 2) * FLW_SHEET_NAME_BYTES];
    size_t length =
        (size_t)snprintf(headings, sizeof headings, "trace|held|requested|can be saved");
    const struct flw_sheet *widest = flw_sheet_widest(sheets, count);
    for (size_t p = 0; count > 0 && p < widest->policy_count; p++) {
        length += (size_t)snprintf(headings + length, sizeof headings - length, "|%s",
                                   widest->policies[p].label);
    }
    const struct flw_sheet_policy *worst = find_worst(sheets, count);
    size_t folder = common_folder(sheets, count);
    uint64_t most_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        most_bytes = flw_max(most_bytes, peak_of(sheets[i].reference));
    }
    struct table table = begin_table(out, headings);
    for (size_t i = 0; i < count; i++) {
        const struct flw_sheet *sheet = &sheets[i];
        const char *source = sheet->trace->source;
        begin_linked_row(&table, source == NULL || sheet->is_other ? sheet->title : source + folder,
                         links == NULL ? NULL : links[i]);
        write_bar(&table, sheet, most_bytes);
        write_text_cell(&table, format_gib(number, sheet->trace->peak_requested_bytes));
        write_saved(&table, sheet);
        for (size_t p = 0; p < widest->policy_count; p++) {
            const struct flw_sheet_policy *policy = flw_sheet_match(sheet, widest, p);
            write_peak(&table, policy, policy != NULL && policy == worst);
        }
        fputs("</tr>\n", out);
    }
    end_table(&table);
}

void flw_page_table_devices(const struct flw_sheet *sheet, FILE *out)
{
    if (sheet->of_devices[0] != '\0') {
        fputs("<p class=lead>", out);
        flw_svg_escape(out, sheet->of_devices);
        fputs("</p>", out);
    }
    for (size_t i = 0; i < sheet->others.count; i++) {
        fputs("<p class=lead>", out);
        flw_svg_escape(out, sheet->others.list[i].text);
        fputs("</p>", out);
    }
}

void flw_page_table_words(FILE *out)
{
    static const char *const words[][2] = {
        {"requested", "what the program asked for and has not freed yet"},
        {"rounding", "what a policy gives beyond the request, because sizes are rounded up"},
        {"reserved",
         "what the policy had taken from the driver: what nvidia-smi sees of it, less the "
         "context and other libraries"},
        {"free", "reserved and not allocated: it can be allocated again without the driver"},
        {"hole",
         "a stretch of free memory between two blocks; a request that fits no hole needs new "
         "memory, however much is free in all"},
        {"fragmentation", "1 - largest hole / all free memory, at the peak"},
        {"steal",
         "memory freed on one stream and given to another, which then waits on the device"},
        {"segment", "a stretch of addresses that the policy had from the driver"},
        {"grow ops", "how often more memory was taken from the driver"},
        {"events", "recorded on a stream, to learn when its work is done"},
        {"splits, merges", "blocks cut in two, free neighbours joined; - where it is not counted"},
        {"deferred",
         "bytes that were freed while other streams still used them, and given to no one until those "
         "were done"},
        {"alive at the start", "allocated before the recording began: part of the replay"},
        {"recorded", "what the recording says really happened"},
        {"(model)", "a policy written from its documentation, not the original"}};
    fputs("<section><h2 id=words>Words</h2><dl>\n", out);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        fprintf(out, "<dt>%s</dt><dd>%s</dd>\n", words[i][0], words[i][1]);
    }
    fputs("</dl></section>\n", out);
}
