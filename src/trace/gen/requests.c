/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading files of requests, and the distributions of drawn requests.
 */
#include "trace/gen/requests.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "record/array.h"
#include "trace/trace/intern.h"

#define QUANTILES      33
#define ARRIVAL_US_MAX (UINT64_C(1) << 50) /* 35 years */
#define HASH_BLOCK     512                 /* tokens per entry of hash_ids */
#define US_PER_SECOND  UINT64_C(1000000)

/* Conversation and code: Azure LLM inference traces of 2023 (AzurePublicDataset, CC-BY). Long: the conversation trace
 * of Mooncake (Apache-2.0), with bursts of arrivals every three seconds. Quantiles 0/32 to 32/32 of prompts, outputs,
 * and gaps in us; the last gap is the 199/200 quantile. */
/* clang-format off */
static const uint64_t tables[][3][QUANTILES] = {
    {
        {2, 165, 194, 206, 235, 374, 383, 391, 396, 401, 405, 412, 428, 818, 966, 1001, 1020, 1037, 1052, 1067, 1083,
         1100, 1120, 1147, 1189, 1312, 1335, 1766, 2309, 3018, 4079, 4089, 14050},
        {7, 33, 45, 53, 60, 68, 75, 81, 85, 89, 92, 95, 99, 104, 110, 118, 129, 141, 157, 171, 195, 223, 377, 389,
         395, 397, 402, 411, 416, 427, 440, 502, 1000},
        {2, 2714, 8853, 14825, 21498, 27629, 33984, 40846, 48272, 56141, 63914, 71779, 80238, 89018, 98243, 107355,
         118424, 130585, 142313, 156008, 171038, 186363, 205113, 225587, 246733, 270662, 302090, 338173, 378057,
         431997, 515396, 667006, 1049912},
    },
    {
        {3, 51, 90, 137, 185, 245, 348, 462, 578, 700, 825, 915, 1014, 1093, 1196, 1342, 1469, 1605, 1734, 1884, 2048,
         2194, 2371, 2539, 2744, 2982, 3330, 3775, 4434, 5510, 6498, 7435, 7437},
        {6, 6, 6, 7, 7, 8, 8, 9, 9, 9, 10, 10, 11, 11, 12, 12, 13, 14, 15, 15, 16, 18, 19, 21, 24, 27, 31, 37, 46, 58,
         77, 126, 1899},
        {6, 62, 112, 186, 683, 919, 1086, 1501, 2077, 2836, 3697, 5026, 7497, 17706, 32410, 47840, 63784, 80525,
         91829, 94632, 96526, 98275, 99675, 101135, 103988, 129978, 180673, 197804, 203754, 288621, 353406, 576347,
         10124387},
    },
    {
        {891, 897, 905, 942, 1090, 1305, 1538, 1859, 2306, 2867, 3542, 4148, 4596, 5087, 5627, 6225, 6909, 7690, 8520,
         9387, 10326, 11496, 12588, 13968, 15366, 16837, 18588, 20850, 24392, 28156, 34175, 51629, 126195},
        {1, 5, 13, 22, 32, 53, 87, 120, 156, 195, 223, 250, 275, 295, 315, 332, 350, 366, 381, 396, 410, 425, 441,
         456, 472, 492, 513, 538, 566, 605, 664, 792, 2000},
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2999000, 3000000,
         3000000, 3001000},
    },
};
/* clang-format on */

/* Draw a number, evenly between two neighbours of the table. */
static uint64_t draw(struct flw_gen *gen, const uint64_t *quantiles)
{
    uint64_t at = flw_gen_between(gen, 0, QUANTILES - 2);
    return flw_gen_between(gen, quantiles[at], quantiles[at + 1]);
}

struct flw_request flw_requests_draw(struct flw_gen *gen, uint64_t kind)
{
    struct flw_request request = {.arrival_us = draw(gen, tables[kind][2])};
    request.prompt = draw(gen, tables[kind][0]);
    request.output = draw(gen, tables[kind][1]);
    return request;
}

/* ---- reading ---- */

struct reader {
    struct flw_input *input;
    struct flw_requests *out;
    size_t room, line_number;
    uint64_t last_us, first_us;
    struct flw_addressmap blocks; /* hashes of prompts seen so far */
};

static bool fail(struct reader *r, const char *what)
{
    flw_input_message(r->input->message, r->input->name, "line %zu: %s", r->line_number, what);
    return false;
}

static bool add(struct reader *r, const struct flw_request *request)
{
    struct flw_requests *out = r->out;
    if (!FLW_ARRAY_FITS(out->items, out->count, r->room)) {
        return fail(r, "no memory to hold the requests");
    }
    r->first_us = out->count == 0 ? request->arrival_us : r->first_us;
    uint64_t since_us = flw_max(request->arrival_us, r->first_us) - r->first_us;
    r->last_us = flw_max(r->last_us, flw_min(since_us, ARRIVAL_US_MAX));
    struct flw_request *kept = &out->items[out->count++];
    kept->arrival_us = r->last_us;
    kept->prompt = flw_clamp(request->prompt, 1, FLW_REQUEST_TOKENS_MAX);
    kept->output = flw_clamp(request->output, 1, FLW_REQUEST_TOKENS_MAX);
    kept->known = flw_min(request->known, kept->prompt - 1);
    return true;
}

/* Read a number at *at and advance *at. */
static bool take_number(const char **at, uint64_t *out)
{
    bool is_number = isdigit((unsigned char)**at);
    char *end;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return is_number && errno == 0;
}

/* Read "2023-11-16 18:17:03.9799600,4808,10"; the fraction has any length, or is missing. */
static bool read_csv(struct reader *r, const char *line)
{
    struct flw_request request = {0};
    struct tm time = {0};
    if (r->line_number == 1) {
        return strcmp(line, "TIMESTAMP,ContextTokens,GeneratedTokens") == 0 ||
               fail(r, "neither TIMESTAMP,ContextTokens,GeneratedTokens nor JSON");
    }
    line = strptime(line, "%Y-%m-%d %H:%M:%S", &time);
    if (line != NULL && *line == '.') {
        uint64_t unit_us = US_PER_SECOND;
        while (isdigit((unsigned char)*++line)) {
            unit_us /= 10;
            request.arrival_us += unit_us * (uint64_t)(*line - '0');
        }
    }
    if (line == NULL || time.tm_year < 70 || *line++ != ',' ||
        !take_number(&line, &request.prompt) || *line++ != ',' ||
        !take_number(&line, &request.output) || *line != '\0') {
        return fail(r, "not \"YYYY-MM-DD HH:MM:SS,tokens,tokens\"");
    }
    request.arrival_us += (uint64_t)timegm(&time) * US_PER_SECOND;
    return add(r, &request);
}

static bool find_number(const char *line, const char *key, uint64_t *out)
{
    const char *at = strstr(line, key);
    at = at == NULL ? "" : at + strlen(key);
    at += strspn(at, ": ");
    return take_number(&at, out);
}

static bool read_json(struct reader *r, const char *line)
{
    struct flw_request request = {0};
    uint64_t time_ms, hash;
    bool is_leading = true;
    if (!find_number(line, "\"timestamp\"", &time_ms) ||
        !find_number(line, "\"input_length\"", &request.prompt) ||
        !find_number(line, "\"output_length\"", &request.output)) {
        return fail(r, "timestamp, input_length and output_length expected");
    }
    request.arrival_us = flw_min(time_ms, ARRIVAL_US_MAX) * 1000;
    const char *at = strstr(line, "\"hash_ids\"");
    at = at == NULL ? NULL : strchr(at, '[');
    while (at != NULL && *(at += strspn(at, "[, ")) != ']' && *at != '\0') {
        if (!take_number(&at, &hash)) {
            return fail(r, "hash_ids is not a list of numbers");
        }
        is_leading = is_leading && flw_addressmap_find(&r->blocks, hash) != FLW_ADDRESSMAP_ABSENT;
        request.known += is_leading ? HASH_BLOCK : 0;
        if (!flw_addressmap_put(&r->blocks, hash, 0)) {
            return fail(r, "no memory to hold the prompts' blocks");
        }
    }
    return add(r, &request);
}

/* Read lines, made strings in place. A NUL in the file ends the line early, which is then rejected. */
static bool read_lines(struct reader *r, char *text, size_t bytes)
{
    char *end = text + bytes;
    bool is_json = text[0] == '{';
    for (char *next; text < end; text = next) {
        char *newline = memchr(text, '\n', (size_t)(end - text));
        char *stop = newline == NULL ? end : newline;
        next = newline == NULL ? end : newline + 1;
        r->line_number++;
        stop -= stop > text && stop[-1] == '\r';
        *stop = '\0';
        if (stop > text && !(is_json ? read_json(r, text) : read_csv(r, text))) {
            return false;
        }
    }
    return r->out->count > 0 || fail(r, "no request");
}

/* Read the input and close it. */
static bool read_input(struct flw_input *input, struct flw_requests *out)
{
    struct reader r = {.input = input, .out = out};
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    bool is_held = file != NULL;
    while (is_held && flw_input_fill(input, 1)) {
        size_t held = (size_t)(input->end - input->at);
        is_held = fwrite(input->at, 1, held, file) == held;
        input->at = input->end;
    }
    is_held = file != NULL && fclose(file) == 0 && is_held;
    bool is_read = !input->failed && (is_held || fail(&r, "no memory to hold the file"));
    if (is_read) {
        out->checksum = flw_intern_hash(text, bytes);
        is_read = read_lines(&r, text, bytes);
    }
    free(text);
    flw_addressmap_finish(&r.blocks);
    flw_input_close(input);
    if (!is_read) {
        flw_requests_finish(out);
    }
    return is_read;
}

bool flw_requests_read_bytes(const char *text, size_t bytes, const char *name,
                             struct flw_requests *out, char *message)
{
    struct flw_input input;
    *out = (struct flw_requests){0};
    return flw_input_open_bytes(&input, text, bytes, name, message) && read_input(&input, out);
}

bool flw_requests_read(struct flw_gen *gen, struct flw_requests *out)
{
    const char *path = gen->values->path;
    struct flw_input input;
    char message[FLW_TRACE_MESSAGE_BYTES];
    if (path == NULL) {
        return true;
    }
    if (!flw_input_open(&input, path, message) || !read_input(&input, out)) {
        return flw_gen_fail(gen, "%s", message);
    }
    snprintf(gen->note, sizeof gen->note, "requests %zu of a file with checksum %016" PRIx64 "\n",
             out->count, out->checksum);
    return true;
}

void flw_requests_finish(struct flw_requests *requests)
{
    free(requests->items);
    *requests = (struct flw_requests){0};
}
