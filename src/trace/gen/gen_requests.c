/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading files of requests, and the tables that stand for them.
 */
#include "trace/gen/gen_requests.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "record/array.h"
#include "trace/io/input.h"
#include "trace/trace/intern.h"

#define QUANTILES        33
#define ARRIVAL_US_MAX   (UINT64_C(1) << 50) /* 35 years */
#define HASH_BLOCK       512                 /* tokens of one of a prompt's hash_ids */
#define FIRST_ROOM_BYTES 65536
#define FILE_BYTES_MAX   (UINT64_C(1) << 30)
#define SECONDS_PER_DAY  UINT64_C(86400)
#define US_PER_SECOND    UINT64_C(1000000)
#define US_PER_MS        UINT64_C(1000)

/* ---- drawing ----------------------------------------------------------------------------------
 */

struct quantiles {
    uint64_t prompts[QUANTILES], outputs[QUANTILES], gaps_us[QUANTILES];
};

/* Conversation and code: Azure LLM inference traces of 2023 (AzurePublicDataset, CC-BY). Long: the
 * conversation trace of Mooncake (Apache-2.0), whose arrivals come in bursts of three seconds. The last
 * gap of each is what 199 in 200 stay below. */
static const struct quantiles tables[FLW_REQUESTS_KIND_COUNT] = {
    [FLW_REQUESTS_CONVERSATION] =
        {.prompts = {2,    165,  194,  206,  235,  374,  383,  391,  396,  401,  405,
                     412,  428,  818,  966,  1001, 1020, 1037, 1052, 1067, 1083, 1100,
                     1120, 1147, 1189, 1312, 1335, 1766, 2309, 3018, 4079, 4089, 14050},
         .outputs = {7,   33,  45,  53,  60,  68,  75,  81,  85,  89,  92,
                     95,  99,  104, 110, 118, 129, 141, 157, 171, 195, 223,
                     377, 389, 395, 397, 402, 411, 416, 427, 440, 502, 1000},
         .gaps_us = {2,      2714,   8853,   14825,  21498,  27629,  33984,  40846,  48272,
                     56141,  63914,  71779,  80238,  89018,  98243,  107355, 118424, 130585,
                     142313, 156008, 171038, 186363, 205113, 225587, 246733, 270662, 302090,
                     338173, 378057, 431997, 515396, 667006, 1049912}},
    [FLW_REQUESTS_CODE] =
        {.prompts = {3,    51,   90,   137,  185,  245,  348,  462,  578,  700,  825,
                     915,  1014, 1093, 1196, 1342, 1469, 1605, 1734, 1884, 2048, 2194,
                     2371, 2539, 2744, 2982, 3330, 3775, 4434, 5510, 6498, 7435, 7437},
         .outputs = {6,  6,  6,  7,  7,  8,  8,  9,  9,  9,  10, 10, 11, 11, 12,  12,  13,
                     14, 15, 15, 16, 18, 19, 21, 24, 27, 31, 37, 46, 58, 77, 126, 1899},
         .gaps_us = {6,      62,     112,    186,    683,    919,     1086,   1501,   2077,
                     2836,   3697,   5026,   7497,   17706,  32410,   47840,  63784,  80525,
                     91829,  94632,  96526,  98275,  99675,  101135,  103988, 129978, 180673,
                     197804, 203754, 288621, 353406, 576347, 10124387}},
    [FLW_REQUESTS_LONG] =
        {.prompts = {891,   897,   905,   942,   1090,  1305,  1538,  1859,  2306,  2867,  3542,
                     4148,  4596,  5087,  5627,  6225,  6909,  7690,  8520,  9387,  10326, 11496,
                     12588, 13968, 15366, 16837, 18588, 20850, 24392, 28156, 34175, 51629, 126195},
         .outputs = {1,   5,   13,  22,  32,  53,  87,  120, 156, 195, 223,
                     250, 275, 295, 315, 332, 350, 366, 381, 396, 410, 425,
                     441, 456, 472, 492, 513, 538, 566, 605, 664, 792, 2000},
         .gaps_us = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,       0,       0,       0,      0,
                     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2999000, 3000000, 3000000, 3001000}},
};

/* Between two neighbours of the table, evenly. */
static uint64_t draw(struct flw_gen *gen, const uint64_t *quantiles)
{
    uint64_t at = flw_gen_between(gen, 0, QUANTILES - 2);
    return flw_gen_between(gen, quantiles[at], quantiles[at + 1]);
}

struct flw_request flw_requests_draw(struct flw_gen *gen, enum flw_requests_kind kind)
{
    struct flw_request request = {0};
    request.arrival_us = draw(gen, tables[kind].gaps_us);
    request.prompt = draw(gen, tables[kind].prompts);
    request.output = draw(gen, tables[kind].outputs);
    return request;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

struct reader {
    const char *name;
    char *message;
    struct flw_requests *out;
    size_t room;
    size_t line_number;
    uint64_t last_us, first_us;
    struct flw_addressmap blocks; /* hashes of prompts seen so far */
};

static bool fail(struct reader *r, const char *what)
{
    flw_input_message(r->message, r->name, "line %zu: %s", r->line_number, what);
    return false;
}

/* A number at *at, which moves behind it. */
static bool take_number(const char **at, uint64_t *out)
{
    const char *c = *at;
    *out = 0;
    for (; *c >= '0' && *c <= '9'; c++) {
        if (*out > (UINT64_MAX - 9) / 10) {
            return false;
        }
        *out = *out * 10 + (uint64_t)(*c - '0');
    }
    bool is_number = c > *at;
    *at = c;
    return is_number;
}

static bool add(struct reader *r, const struct flw_request *request)
{
    struct flw_requests *out = r->out;
    if (!FLW_ARRAY_FITS(out->items, out->count, r->room)) {
        return fail(r, "no memory to hold the requests");
    }
    if (out->count == 0) {
        r->first_us = request->arrival_us;
    }
    uint64_t since_us = flw_max(request->arrival_us, r->first_us) - r->first_us;
    r->last_us = flw_max(r->last_us, flw_min(since_us, ARRIVAL_US_MAX));
    struct flw_request kept = *request;
    kept.arrival_us = r->last_us;
    kept.prompt = flw_clamp(kept.prompt, 1, FLW_REQUEST_TOKENS_MAX);
    kept.output = flw_clamp(kept.output, 1, FLW_REQUEST_TOKENS_MAX);
    kept.known = flw_min(kept.known, kept.prompt - 1);
    out->items[out->count++] = kept;
    return true;
}

/* Days since 1970-01-01 of the Gregorian calendar. */
static uint64_t count_days(uint64_t year, uint64_t month, uint64_t day)
{
    uint64_t from_march = (month + 9) % 12;
    uint64_t years = year - (month <= 2);
    return years * 365 + years / 4 - years / 100 + years / 400 + (153 * from_march + 2) / 5 + day -
           719469;
}

/* "2023-11-16 18:17:03.9799600", the fraction of any length, or none. */
static bool take_time(const char **at, uint64_t *out_us)
{
    static const char marks[] = "-- ::";
    uint64_t parts[6];
    for (size_t i = 0; i < 6; i++) {
        if ((i > 0 && *(*at)++ != marks[i - 1]) || !take_number(at, &parts[i])) {
            return false;
        }
    }
    if (parts[0] < 1970 || parts[0] > 9999 || parts[1] < 1 || parts[1] > 12 || parts[2] < 1 ||
        parts[2] > 31 || parts[3] > 23 || parts[4] > 59 || parts[5] > 60) {
        return false;
    }
    uint64_t seconds = count_days(parts[0], parts[1], parts[2]) * SECONDS_PER_DAY +
                       parts[3] * 3600 + parts[4] * 60 + parts[5];
    *out_us = seconds * US_PER_SECOND;
    if (**at == '.') {
        uint64_t unit_us = US_PER_SECOND;
        for ((*at)++; **at >= '0' && **at <= '9'; (*at)++) {
            unit_us /= 10;
            *out_us += unit_us * (uint64_t)(**at - '0');
        }
    }
    return true;
}

static bool read_csv(struct reader *r, const char *line)
{
    struct flw_request request = {0};
    if (r->line_number == 1) {
        return strcmp(line, "TIMESTAMP,ContextTokens,GeneratedTokens") == 0 ||
               fail(r, "neither TIMESTAMP,ContextTokens,GeneratedTokens nor JSON");
    }
    bool is_row = take_time(&line, &request.arrival_us) && *line++ == ',' &&
                  take_number(&line, &request.prompt) && *line++ == ',' &&
                  take_number(&line, &request.output) && *line == '\0';
    return is_row ? add(r, &request) : fail(r, "not \"YYYY-MM-DD HH:MM:SS,tokens,tokens\"");
}

static bool find_number(const char *line, const char *key, uint64_t *out)
{
    const char *at = strstr(line, key);
    if (at == NULL) {
        return false;
    }
    at += strlen(key);
    at += strspn(at, ": ");
    return take_number(&at, out);
}

/* Tokens of the leading blocks that some earlier prompt had; all blocks are known from here on. */
static bool look_up_blocks(struct reader *r, const char *line, uint64_t *out_known)
{
    const char *at = strstr(line, "\"hash_ids\"");
    bool is_leading = true;
    *out_known = 0;
    at = at == NULL ? NULL : strchr(at, '[');
    uint64_t hash;
    while (at != NULL && *at != ']' && *at != '\0') {
        at += strspn(at, "[, ");
        if (*at == ']') {
            break;
        }
        if (!take_number(&at, &hash)) {
            return fail(r, "hash_ids is no list of numbers");
        }
        bool is_known = flw_addressmap_find(&r->blocks, hash) != FLW_ADDRESSMAP_ABSENT;
        is_leading = is_leading && is_known;
        *out_known += is_leading ? HASH_BLOCK : 0;
        if (!is_known && !flw_addressmap_put(&r->blocks, hash, 0)) {
            return fail(r, "no memory to hold the prompts' blocks");
        }
    }
    return true;
}

static bool read_json(struct reader *r, const char *line)
{
    struct flw_request request = {0};
    uint64_t time_ms;
    if (!find_number(line, "\"timestamp\"", &time_ms) || time_ms > UINT64_MAX / US_PER_MS ||
        !find_number(line, "\"input_length\"", &request.prompt) ||
        !find_number(line, "\"output_length\"", &request.output)) {
        return fail(r, "timestamp, input_length and output_length expected");
    }
    request.arrival_us = time_ms * US_PER_MS;
    return look_up_blocks(r, line, &request.known) && add(r, &request);
}

/* Lines become strings in place; a NUL in the file ends its line early and is refused as such. */
static bool read_lines(struct reader *r, char *text, size_t bytes)
{
    char *end = text + bytes;
    bool is_json = bytes > 0 && text[0] == '{';
    while (text < end) {
        char *newline = memchr(text, '\n', (size_t)(end - text));
        char *next = newline == NULL ? end : newline + 1;
        char *stop = newline == NULL ? end : newline;
        r->line_number++;
        if (stop > text && stop[-1] == '\r') {
            stop--;
        }
        *stop = '\0';
        if (stop > text && !(is_json ? read_json(r, text) : read_csv(r, text))) {
            return false;
        }
        text = next;
    }
    return r->out->count > 0 || fail(r, "no request");
}

bool flw_requests_read_bytes(const char *text, size_t bytes, const char *name,
                             struct flw_requests *out, char *message)
{
    struct reader r = {.name = name, .message = message, .out = out};
    *out = (struct flw_requests){.checksum = flw_intern_hash(text, bytes)};
    message[0] = '\0';
    char *copy = malloc(bytes + 1);
    bool is_read = false;
    if (copy == NULL) {
        fail(&r, "no memory to hold the file");
    } else {
        memcpy(copy, text, bytes);
        is_read = read_lines(&r, copy, bytes);
    }
    free(copy);
    flw_addressmap_finish(&r.blocks);
    if (!is_read) {
        flw_requests_finish(out);
    }
    return is_read;
}

/* All bytes of an input; NULL and its message where it fails. */
static char *read_all(struct flw_input *input, size_t *out_bytes)
{
    size_t room = FIRST_ROOM_BYTES;
    char *text = malloc(room);
    *out_bytes = 0;
    while (text != NULL && flw_input_fill(input, 1)) {
        size_t held = (size_t)(input->end - input->at);
        if (*out_bytes + held > FILE_BYTES_MAX) {
            flw_input_fail(input, flw_input_offset(input), "more than 1 GiB of requests");
            break;
        }
        if (*out_bytes + held > room) {
            room = 2 * (*out_bytes + held);
            char *more = realloc(text, room);
            if (more == NULL) {
                free(text);
            }
            text = more;
        }
        if (text != NULL) {
            memcpy(text + *out_bytes, input->at, held);
            *out_bytes += held;
            input->at = input->end;
        }
    }
    if (text == NULL) {
        flw_input_fail(input, flw_input_offset(input), "no memory to hold the file");
    } else if (input->failed) {
        free(text);
        text = NULL;
    }
    return text;
}

bool flw_requests_read(const char *path, struct flw_requests *out, char *message)
{
    struct flw_input input;
    size_t bytes;
    *out = (struct flw_requests){0};
    if (!flw_input_open(&input, path, message)) {
        return false;
    }
    char *text = read_all(&input, &bytes);
    flw_input_close(&input);
    bool is_read = text != NULL && flw_requests_read_bytes(text, bytes, path, out, message);
    free(text);
    return is_read;
}

void flw_requests_finish(struct flw_requests *requests)
{
    free(requests->items);
    *requests = (struct flw_requests){0};
}
