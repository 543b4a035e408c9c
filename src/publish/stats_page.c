/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the encoding of a stats page. */
#include "publish/stats_page.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_WORDS   6
#define DRIVER_WORDS 4
#define POOL_WORDS   (FLW_VALUE_COUNT + 2 * FLW_STATS_PAGE_STAGES + DRIVER_WORDS)
#define CLASS_WORDS  (sizeof(struct flw_stats_page_class) / 8)
#define STREAM_WORDS (sizeof(struct flw_stats_page_stream) / 8)
#define HOLDER_WORDS (sizeof(struct flw_stats_page_holder) / 8)
#define ARENA_WORDS  (sizeof(struct flw_stats_page_arena) / 8)
#define MOST_POOLS   4096

_Static_assert(sizeof(struct flw_stats_page_class) == 56, "words and nothing else");
_Static_assert(sizeof(struct flw_stats_page_stream) == 104, "words and nothing else");
_Static_assert(sizeof(struct flw_stats_page_holder) == 1024, "words and nothing else");
_Static_assert(sizeof(struct flw_stats_page_arena) == 112, "words and nothing else");

const char *flw_stats_page_stage(const struct flw_stats_page_pool *pool, uint64_t stage)
{
    static const char *const names[2][FLW_STATS_PAGE_STAGES] = {
        {"own", "complete", "own_caches", "caches", "grow", "steal", "fence", "remap_wait", "limit",
         "callback", "wait", "fail"},
        {"ready", "complete", "close", "grow", "caches", "wait", "exchange", "limit", "trim",
         "callback", "fail"}};
    return stage < FLW_STATS_PAGE_STAGES
               ? names[pool->value[FLW_VALUE_has_context_order] != 0][stage]
               : NULL;
}

/* ---- writing */

static void put_word(struct flw_stats_page_writer *writer, uint64_t word)
{
    for (unsigned i = 0; i < 8; i++) {
        writer->bytes[writer->used + i] = (unsigned char)(word >> 8 * i);
    }
    writer->used += 8;
}

static void put_words(struct flw_stats_page_writer *writer, const void *words, size_t count)
{
    const unsigned char *at = words;
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, at + 8 * i, 8);
        put_word(writer, word);
    }
}

static void put_text(struct flw_stats_page_writer *writer, const char *text, size_t word_count)
{
    memcpy(writer->bytes + writer->used, text, 8 * word_count);
    writer->used += 8 * word_count;
}

void flw_stats_page_begin(struct flw_stats_page_writer *writer, void *bytes, size_t capacity)
{
    *writer = (struct flw_stats_page_writer){
        .bytes = bytes, .capacity = capacity, .used = 8 * (1 + HEAD_WORDS)};
}

void flw_stats_page_add(struct flw_stats_page_writer *writer,
                        const struct flw_stats_page_pool *pool)
{
    size_t most = (writer->capacity - writer->used) / 8;
    size_t bare = 1 + POOL_WORDS + 2 + 2 + 2 + 2;
    size_t all = bare + pool->class_count * CLASS_WORDS + pool->stream_count * STREAM_WORDS +
                 pool->arena_count * ARENA_WORDS;
    uint32_t classes = pool->class_count, streams = pool->stream_count, arenas = pool->arena_count;
    /* One half is reserved for the tables of further pools. */
    bool has_room = all + pool->holder_count * HOLDER_WORDS + writer->capacity / 16 <= most;
    uint32_t holders = has_room ? pool->holder_count : 0;
    if (all > most) {
        classes = streams = arenas = 0;
        if (bare > most) {
            return;
        }
    }
    put_word(writer, POOL_WORDS);
    put_words(writer, pool->value, FLW_VALUE_COUNT);
    put_words(writer, pool->stage_count, FLW_STATS_PAGE_STAGES);
    put_words(writer, pool->stage_ns, FLW_STATS_PAGE_STAGES);
    put_text(writer, pool->driver, DRIVER_WORDS);
    put_word(writer, classes);
    put_word(writer, CLASS_WORDS);
    put_words(writer, pool->classes, classes * CLASS_WORDS);
    put_word(writer, streams);
    put_word(writer, STREAM_WORDS);
    put_words(writer, pool->streams, streams * STREAM_WORDS);
    put_word(writer, holders);
    put_word(writer, HOLDER_WORDS);
    put_words(writer, pool->holders, holders * HOLDER_WORDS);
    put_word(writer, arenas);
    put_word(writer, ARENA_WORDS);
    put_words(writer, pool->arenas, arenas * ARENA_WORDS);
    writer->pool_count++;
}

size_t flw_stats_page_end(struct flw_stats_page_writer *writer,
                          const struct flw_stats_page *stats_page)
{
    size_t used = writer->used;
    writer->used = 0;
    put_word(writer, HEAD_WORDS);
    put_word(writer, stats_page->process);
    put_text(writer, stats_page->name, 2);
    put_word(writer, stats_page->clock_ns);
    put_word(writer, stats_page->pool_total);
    put_word(writer, writer->pool_count);
    writer->used = used;
    return used;
}

/* ---- reading */

struct source {
    const unsigned char *bytes;
    size_t word_count, at;
    bool is_broken;
};

static uint64_t get_word(struct source *source)
{
    uint64_t word = 0;
    if (source->at >= source->word_count) {
        source->is_broken = true;
        return 0;
    }
    for (unsigned i = 8; i-- > 0;) {
        word = word << 8 | source->bytes[8 * source->at + i];
    }
    source->at++;
    return word;
}

static void skip(struct source *source, uint64_t count)
{
    if (count > source->word_count - source->at) {
        source->is_broken = true;
        count = source->word_count - source->at;
    }
    source->at += (size_t)count;
}

/* Read a record of `count` words, `known` of which we know: missing ones are 0. */
static void get_words(struct source *source, uint64_t count, uint64_t *words, size_t known)
{
    for (size_t i = 0; i < known; i++) {
        words[i] = i < count ? get_word(source) : 0;
    }
    if (count > known) {
        skip(source, count - known);
    }
}

static void get_text(const uint64_t *words, size_t word_count, char *text)
{
    for (size_t i = 0; i < 8 * word_count; i++) {
        text[i] = (char)(words[i / 8] >> 8 * (i % 8));
    }
    text[8 * word_count - 1] = '\0';
}

/* Read rows of a table into `rows`, which has room for `most`. Returns the count; otherwise the
 * data is broken. */
static uint32_t get_rows(struct source *source, void *rows, size_t row_words, uint32_t most)
{
    uint64_t count = get_word(source), words = get_word(source);
    uint64_t row[HOLDER_WORDS] = {0};
    if (count > most || (count > 0 && words > source->word_count) ||
        row_words > sizeof row / sizeof *row) {
        source->is_broken = true;
        return 0;
    }
    for (uint64_t i = 0; i < count && !source->is_broken; i++) {
        get_words(source, words, row, row_words);
        memcpy((unsigned char *)rows + i * 8 * row_words, row, 8 * row_words);
    }
    return (uint32_t)count;
}

/* A later version may have more values than we know: the record has the number of words, and
 * everything after the values has as many words as we know. */
static void get_pool(struct source *source, struct flw_stats_page_pool *pool)
{
    uint64_t tail[2 * FLW_STATS_PAGE_STAGES + DRIVER_WORDS];
    size_t tail_words = sizeof tail / sizeof *tail;
    uint64_t count = get_word(source);
    if (count < tail_words) {
        source->is_broken = true;
        return;
    }
    get_words(source, count - tail_words, pool->value, FLW_VALUE_COUNT);
    get_words(source, tail_words, tail, tail_words);
    memcpy(pool->stage_count, tail, sizeof pool->stage_count);
    memcpy(pool->stage_ns, tail + FLW_STATS_PAGE_STAGES, sizeof pool->stage_ns);
    get_text(tail + 2 * (size_t)FLW_STATS_PAGE_STAGES, DRIVER_WORDS, pool->driver);
    pool->class_count = get_rows(source, pool->classes, CLASS_WORDS, FLW_STATS_PAGE_CLASSES);
    pool->stream_count = get_rows(source, pool->streams, STREAM_WORDS, FLW_STATS_PAGE_STREAMS + 1);
    pool->holder_count = get_rows(source, pool->holders, HOLDER_WORDS, FLW_STATS_PAGE_HOLDERS + 1);
    for (uint32_t i = 0; i < pool->holder_count; i++) {
        pool->holders[i].frames[FLW_STATS_PAGE_FRAMES_BYTES - 1] = '\0';
    }
    pool->arena_count = get_rows(source, pool->arenas, ARENA_WORDS, FLW_STATS_PAGE_ARENAS);
    for (uint32_t i = 0; i < pool->arena_count; i++) {
        pool->arenas[i].name[sizeof pool->arenas[i].name - 1] = '\0';
    }
}

bool flw_stats_page_read(struct flw_stats_page *stats_page, const void *bytes, size_t count)
{
    struct source source = {.bytes = bytes, .word_count = count / 8};
    uint64_t head[HEAD_WORDS];
    get_words(&source, get_word(&source), head, HEAD_WORDS);
    *stats_page = (struct flw_stats_page){.process = head[0],
                                          .clock_ns = head[3],
                                          .pool_total = head[4],
                                          .pool_count = (uint32_t)head[5]};
    get_text(head + 1, 2, stats_page->name);
    if (source.is_broken || count % 8 != 0 || head[5] > head[4] || head[5] > MOST_POOLS) {
        return false;
    }
    stats_page->pools = calloc(stats_page->pool_count + 1, sizeof *stats_page->pools);
    for (uint32_t i = 0; stats_page->pools != NULL && i < stats_page->pool_count; i++) {
        get_pool(&source, &stats_page->pools[i]);
    }
    if (stats_page->pools == NULL || source.is_broken || source.at != source.word_count) {
        flw_stats_page_drop(stats_page);
        return false;
    }
    return true;
}

void flw_stats_page_drop(struct flw_stats_page *stats_page)
{
    free(stats_page->pools);
    stats_page->pools = NULL;
    stats_page->pool_count = 0;
}
