/* SPDX-License-Identifier: Apache-2.0 */
#include "record/callstack.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/lock.h"
#include "record/addressmap.h"
#include "record/array.h"

#define BUCKET_LOG2 16
#define OWN_MOST    16 /* frames of this library, and of the callers in a driver's name */
#define WORDS_MOST  (FLW_CALLSTACK_DEPTH_MOST * 3 + OWN_MOST)
#define FILE_BYTES  (PATH_MAX + 32)

/* Identity of a frame: a return address and 0, or a code object and the instruction in it plus 1
 * (before CPython 3.11 the line). */
struct key {
    uint64_t of, in;
};

struct known {
    struct known *next; /* in the bucket */
    uint64_t hash;
    uint32_t number;
    uint32_t word_count;
    unsigned depth; /* requested depth: a deeper walk may have the same words */
    struct flw_callstack stack;
    uint64_t words[];
};

/* Functions of Python. Objects are Python's own; for `taken` ones the caller owns a reference. */
struct python {
    void *(*thread_that_runs)(void);
    void *(*own_thread)(void);
    void *(*frame)(void);
    void *(*back)(void *frame);      /* taken; NULL: by attributes */
    void *(*code)(void *frame);      /* the same */
    int (*instruction)(void *frame); /* NULL before 3.11 */
    int (*line)(void *frame);
    void *(*attribute)(void *object, const char *name); /* taken */
    const char *(*text)(void *object);
    void (*clear)(void);
    void (*take)(void *object);
    void (*drop)(void *object);
    void (*fetch)(void **type, void **value, void **trace);
    void (*restore)(void *type, void *value, void *trace);
    int (*enter)(void); /* takes the interpreter; returns the argument of leave */
    void (*leave)(int state);
    int (*is_ending)(void); /* NULL: unknown */
    void *(*first)(void);   /* of the interpreters */
    void *(*next)(void *interpreter);
    void *(*encode)(void *text); /* taken; in the encoding of file names */
    const char *(*bytes)(void *object);
    const void *module; /* of the interpreter */
};

struct flw_callstacks {
    struct flw_callstacks *before; /* the parent's, in the child of a fork */
    int (*unwind)(void **addresses, int count);
    bool is_quick;
    const void *own_module, *program; /* start of their modules */
    char program_path[PATH_MAX];      /* "": unknown; the loader only has the command's name */
    char *(*demangle)(const char *name, char *out, size_t *room, int *status);
    void (*release)(
        void *text); /* for results of demangle: the program's free, which may differ from this
                       library's */
    _Atomic(struct python *) python;  /* NULL: not found yet */
    _Atomic uint32_t look_count;      /* searches without success */
    _Atomic(struct known *) *buckets; /* newest first */
    struct flw_lock lock;             /* for the following fields */
    struct known **stacks;            /* by number, minus 1 */
    size_t stack_count, stack_room;
    struct flw_callframe *frames;
    struct key *keys; /* of the frames */
    size_t frame_count, frame_room, key_room;
    struct flw_addressmap frame_places; /* hash of a key -> number */
};

atomic_uint flw_callstack_recordings;

static pthread_key_t seen_key, inside_key; /* set once a table was created */
static bool is_child;                      /* of a fork */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* ---- Python */

static bool find(void *out, const char *symbol)
{
    void *address = dlsym(RTLD_DEFAULT, symbol);
    memcpy(out, &address, sizeof address);
    return address != NULL;
}

static const void *module_of(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) != 0 ? info.dli_fbase : NULL;
}

/* CPython 3.8 has no functions for this; the headers have the structure. */
struct frame_3_8 {
    intptr_t reference_count;
    void *type;
    intptr_t size;
    void *back, *code;
};

static void *take(void *object)
{
    if (object != NULL) {
        ++*(intptr_t *)object; /* the reference count */
    }
    return object;
}

static void *back_3_8(void *frame)
{
    return take(((const struct frame_3_8 *)frame)->back);
}

static void *code_3_8(void *frame)
{
    return take(((const struct frame_3_8 *)frame)->code);
}

/* Builds that trace references have two more fields before these. */
static void find_frame_functions(struct python *found)
{
    const char *(*version)(void);
    void *traces;
    (void)find(&found->back, "PyFrame_GetBack");
    (void)find(&found->code, "PyFrame_GetCode");
    (void)find(&found->instruction, "PyFrame_GetLasti");
    if (found->back == NULL && find(&version, "Py_GetVersion") &&
        strncmp(version(), "3.8.", 4) == 0 && !find(&traces, "PyModule_Create2TraceRefs")) {
        found->back = back_3_8;
        found->code = code_3_8;
    }
}

/* Python may be loaded at any time, also by the program's own dlopen, if the symbols are global. */
static struct python *find_python(struct flw_callstacks *all)
{
    struct python found = {0}, *expected = NULL;
    void *address;
    if (!find(&address, "PyEval_GetFrame")) {
        return NULL;
    }
    bool is_whole =
        (find(&found.thread_that_runs, "PyThreadState_GetUnchecked") ||
         find(&found.thread_that_runs, "_PyThreadState_UncheckedGet")) &&
        find(&found.own_thread, "PyGILState_GetThisThreadState") &&
        find(&found.frame, "PyEval_GetFrame") && find(&found.line, "PyFrame_GetLineNumber") &&
        find(&found.attribute, "PyObject_GetAttrString") && find(&found.text, "PyUnicode_AsUTF8") &&
        find(&found.clear, "PyErr_Clear") && find(&found.take, "Py_IncRef") &&
        find(&found.drop, "Py_DecRef") && find(&found.fetch, "PyErr_Fetch") &&
        find(&found.restore, "PyErr_Restore") && find(&found.enter, "PyGILState_Ensure") &&
        find(&found.leave, "PyGILState_Release") && find(&found.first, "PyInterpreterState_Head") &&
        find(&found.next, "PyInterpreterState_Next") &&
        find(&found.encode, "PyUnicode_EncodeFSDefault") && find(&found.bytes, "PyBytes_AsString");
    (void)(find(&found.is_ending, "Py_IsFinalizing") || find(&found.is_ending, "_Py_IsFinalizing"));
    find_frame_functions(&found);
    found.module = module_of(address);
    struct python *python = is_whole ? malloc(sizeof *python) : NULL;
    if (python != NULL) {
        *python = found;
        if (!atomic_compare_exchange_strong(&all->python, &expected, python)) {
            free(python);
            python = expected;
        }
    }
    return python;
}

/* True at the first, second, fourth, eighth ... stack, then every 65,536 stacks. */
static bool is_due(struct flw_callstacks *all)
{
    uint32_t count = 1 + atomic_fetch_add_explicit(&all->look_count, 1, memory_order_relaxed);
    return (count & (count - 1)) == 0 || count % 65536 == 0;
}

enum hold {
    HOLD_NONE,
    HOLD_OWN,  /* the thread runs Python */
    HOLD_TAKEN /* taken for this walk */
};

/* Determine whether Python may be called. A thread unknown to Python may not. Before 3.12 a
 * thread's interpreter does not show whether the thread has the lock that all share: with several
 * interpreters the lock is not taken. */
static enum hold hold_python(const struct python *python, bool enters, int *out_state)
{
    const void *own = python->own_thread();
    if (own != NULL && python->thread_that_runs() == own) {
        return HOLD_OWN;
    }
    if (own == NULL || !enters || (python->is_ending != NULL && python->is_ending()) ||
        python->next(python->first()) != NULL) {
        return HOLD_NONE;
    }
    *out_state = python->enter();
    return HOLD_TAKEN;
}

static void *frame_behind(const struct python *python, void *frame)
{
    return python->back != NULL ? python->back(frame) : python->attribute(frame, "f_back");
}

static void *code_of(const struct python *python, void *frame)
{
    return python->code != NULL ? python->code(frame) : python->attribute(frame, "f_code");
}

static struct key python_key(const struct python *python, void *frame, const void *code)
{
    int place = python->instruction != NULL ? python->instruction(frame) : python->line(frame);
    return (struct key){(uint64_t)(uintptr_t)code, (uint64_t)(uint32_t)place + 1};
}

/* A path need not be text: then copy the bytes. */
static char *copy_bytes(const struct python *python, void *value)
{
    void *encoded = python->encode(value);
    const char *bytes = encoded != NULL ? python->bytes(encoded) : NULL;
    char *copy = flw_array_copy_text(bytes != NULL ? bytes : "?");
    if (encoded != NULL) {
        python->drop(encoded);
    }
    return copy;
}

/* NULL: no such attribute, or no memory. */
static char *copy_attribute(const struct python *python, void *object, const char *name)
{
    void *value = python->attribute(object, name);
    char *copy = NULL;
    if (value != NULL) {
        const char *text = python->text(value);
        if (text == NULL) {
            python->clear();
        }
        copy = text != NULL ? flw_array_copy_text(text) : copy_bytes(python, value);
        python->drop(value);
    }
    python->clear();
    return copy;
}

/* ---- frames */

static uint64_t hash_of(const struct key *key)
{
    return mix(mix(0, key->of), key->in);
}

/* Return a frame's number; FLW_ADDRESSMAP_ABSENT: none, and *hash is the place. Lock held. */
static uint32_t find_frame(const struct flw_callstacks *all, const struct key *key, uint64_t *hash)
{
    uint32_t number;
    *hash = hash_of(key);
    while ((number = flw_addressmap_find(&all->frame_places, *hash)) != FLW_ADDRESSMAP_ABSENT &&
           (all->keys[number].of != key->of || all->keys[number].in != key->in)) {
        ++*hash; /* two frames with one hash */
    }
    return number;
}

static bool is_known(struct flw_callstacks *all, const struct key *key, uint32_t *out)
{
    uint64_t hash;
    flw_lock_acquire(&all->lock);
    *out = find_frame(all, key, &hash);
    flw_lock_release(&all->lock);
    return *out != FLW_ADDRESSMAP_ABSENT;
}

/* Add a frame. The table takes the texts, or they are freed. False: no memory. *is_new: the table
 * takes the key too. */
static bool add_frame(struct flw_callstacks *all, const struct key *key,
                      struct flw_callframe *frame, uint32_t *out, bool *is_new)
{
    uint64_t hash;
    *is_new = false;
    flw_lock_acquire(&all->lock);
    *out = find_frame(all, key, &hash);
    if (*out == FLW_ADDRESSMAP_ABSENT && frame->function != NULL && frame->file != NULL &&
        all->frame_count < FLW_ADDRESSMAP_ABSENT &&
        FLW_ARRAY_FITS(all->frames, all->frame_count, all->frame_room) &&
        FLW_ARRAY_FITS(all->keys, all->frame_count, all->key_room) &&
        flw_addressmap_put(&all->frame_places, hash, (uint32_t)all->frame_count)) {
        *out = (uint32_t)all->frame_count++;
        all->frames[*out] = *frame;
        all->keys[*out] = *key;
        *is_new = true;
    }
    flw_lock_release(&all->lock);
    if (!*is_new) {
        free(frame->function);
        free(frame->file);
    }
    return *out != FLW_ADDRESSMAP_ABSENT;
}

static bool name_native(struct flw_callstacks *all, const struct key *key, uint32_t *out)
{
    char file[FILE_BYTES];
    const char *function = "";
    char *readable = NULL;
    uintptr_t address = (uintptr_t)key->of;
    bool is_new;
    Dl_info info = {0};
    if (dladdr((const void *)(address - 1), &info) != 0 && info.dli_fname != NULL) {
        char whole[PATH_MAX];
        const char *path = info.dli_fname;
        if (info.dli_fbase == all->program && all->program_path[0] != '\0') {
            path = all->program_path;
        } else if (path[0] != '/' && realpath(path, whole) != NULL) {
            path = whole;
        }
        snprintf(file, sizeof file, "%s+0x%zx", path,
                 (size_t)(address - (uintptr_t)info.dli_fbase));
    } else {
        snprintf(file, sizeof file, "0x%zx", (size_t)address);
    }
    if (info.dli_sname != NULL) {
        int status = -1;
        function = info.dli_sname;
        readable = all->demangle != NULL ? all->demangle(function, NULL, NULL, &status) : NULL;
    }
    struct flw_callframe frame = {flw_array_copy_text(readable != NULL ? readable : function),
                                  flw_array_copy_text(file), 0};
    if (readable != NULL) {
        all->release(readable);
    }
    return add_frame(all, key, &frame, out, &is_new);
}

/* The code object stays alive from now on. */
static bool name_python(struct flw_callstacks *all, const struct python *python, void *frame,
                        void *code, const struct key *key, uint32_t *out)
{
    int line = python->line(frame);
    struct flw_callframe named = {.function = copy_attribute(python, code, "co_qualname"),
                                  .file = copy_attribute(python, code, "co_filename"),
                                  .line = line > 0 ? (uint32_t)line : 0};
    bool is_new;
    if (named.function == NULL) { /* before 3.11 */
        named.function = copy_attribute(python, code, "co_name");
    }
    bool is_there = add_frame(all, key, &named, out, &is_new);
    if (is_new) {
        python->take(code);
    }
    return is_there;
}

/* ---- walking */

struct sight {
    uint64_t words[WORDS_MOST]; /* return addresses, then `of` and `in` of Python's frames */
    size_t native_count, word_count;
    uint32_t frames[FLW_CALLSTACK_DEPTH_MOST * 2]; /* numbers, if requested */
    size_t frame_count;
    unsigned depth;
    bool has_memory;
};

static void see_native(struct flw_callstacks *all, struct sight *sight)
{
    void *addresses[FLW_CALLSTACK_DEPTH_MOST + OWN_MOST];
    int count = all->unwind(addresses, (int)sight->depth + OWN_MOST);
    sight->native_count = count > 0 ? (size_t)count : 0;
    for (size_t i = 0; i < sight->native_count; i++) {
        sight->words[i] = (uint64_t)(uintptr_t)addresses[i];
    }
    sight->word_count = sight->native_count;
}

static void see_frame(struct flw_callstacks *all, const struct python *python, void *frame,
                      struct sight *sight, bool is_named)
{
    void *code = code_of(python, frame);
    if (code == NULL) {
        python->clear();
        return;
    }
    struct key key = python_key(python, frame, code);
    if (is_named) {
        uint32_t number;
        bool is_there =
            is_known(all, &key, &number) || name_python(all, python, frame, code, &key, &number);
        sight->has_memory &= is_there;
        sight->frames[sight->frame_count] = number;
        sight->frame_count += is_there;
    } else {
        sight->words[sight->word_count++] = key.of;
        sight->words[sight->word_count++] = key.in;
    }
    python->drop(code);
}

/* Collect the words of Python's frames or, if named, their numbers. */
static void see_python(struct flw_callstacks *all, const struct python *python, struct sight *sight,
                       bool is_named)
{
    void *type, *value, *trace;
    python->fetch(&type, &value, &trace);
    void *frame = python->frame();
    if (frame != NULL) {
        python->take(frame);
    }
    for (unsigned i = 0; frame != NULL && i < sight->depth; i++) {
        see_frame(all, python, frame, sight, is_named);
        void *behind = frame_behind(python, frame);
        python->drop(frame);
        frame = behind;
    }
    if (frame != NULL) {
        python->drop(frame);
    }
    python->restore(type, value, trace);
}

/* ---- stacks */

static struct known *find_stack(const struct flw_callstacks *all, const struct sight *sight,
                                uint64_t hash)
{
    struct known *known =
        atomic_load_explicit(&all->buckets[hash >> (64 - BUCKET_LOG2)], memory_order_acquire);
    while (known != NULL &&
           (known->hash != hash || known->depth != sight->depth ||
            known->word_count != sight->word_count ||
            memcmp(known->words, sight->words, known->word_count * sizeof *known->words) != 0)) {
        known = known->next;
    }
    return known;
}

/* The innermost frames of this library are not the caller's; they cannot be told apart if it is
 * linked into the program. */
static bool is_own(const struct flw_callstacks *all, const void *module)
{
    return module == all->own_module && module != all->program;
}

/* Below the interpreter, Python's own C functions add nothing to Python's frames. */
static void name_natives(struct flw_callstacks *all, struct sight *sight)
{
    const struct python *python = atomic_load(&all->python);
    bool ends = python != NULL && sight->word_count > sight->native_count;
    size_t i = 0;
    while (i < sight->native_count &&
           is_own(all, module_of((const void *)(uintptr_t)(sight->words[i] - 1)))) {
        i++;
    }
    for (; i < sight->native_count && sight->frame_count < sight->depth; i++) {
        struct key key = {sight->words[i], 0};
        uint32_t number;
        if (ends && module_of((const void *)(uintptr_t)(key.of - 1)) == python->module) {
            break;
        }
        if (is_known(all, &key, &number) || name_native(all, &key, &number)) {
            sight->frames[sight->frame_count++] = number;
        } else {
            sight->has_memory = false;
        }
    }
}

static struct known *make_known(const struct sight *sight, uint64_t hash)
{
    size_t word_bytes = sight->word_count * sizeof sight->words[0];
    size_t frame_bytes = sight->frame_count * sizeof sight->frames[0];
    struct known *known = malloc(sizeof *known + word_bytes + frame_bytes);
    if (known != NULL) {
        uint32_t *frames = (uint32_t *)(void *)&known->words[sight->word_count];
        memcpy(known->words, sight->words, word_bytes);
        memcpy(frames, sight->frames, frame_bytes);
        known->hash = hash;
        known->depth = sight->depth;
        known->word_count = (uint32_t)sight->word_count;
        known->stack = (struct flw_callstack){frames, sight->frame_count};
    }
    return known;
}

/* Another thread may have been first. */
static struct known *insert(struct flw_callstacks *all, const struct sight *sight, uint64_t hash)
{
    struct known *made = make_known(sight, hash);
    if (made == NULL) {
        return NULL;
    }
    flw_lock_acquire(&all->lock);
    struct known *known = find_stack(all, sight, hash);
    if (known == NULL && all->stack_count < FLW_ADDRESSMAP_ABSENT - 1 &&
        FLW_ARRAY_FITS(all->stacks, all->stack_count, all->stack_room)) {
        _Atomic(struct known *) *bucket = &all->buckets[hash >> (64 - BUCKET_LOG2)];
        known = made;
        made = NULL;
        all->stacks[all->stack_count++] = known;
        known->number = (uint32_t)all->stack_count;
        known->next = atomic_load_explicit(bucket, memory_order_relaxed);
        atomic_store_explicit(bucket, known, memory_order_release);
    }
    flw_lock_release(&all->lock);
    free(made);
    return known;
}

/* `python`: Python may be called. */
static struct known *find_or_add(struct flw_callstacks *all, const struct python *python,
                                 struct sight *sight)
{
    uint64_t hash = sight->depth;
    if (python != NULL) {
        see_python(all, python, sight, false);
    }
    for (size_t i = 0; i < sight->word_count; i++) {
        hash = mix(hash, sight->words[i]);
    }
    struct known *known = find_stack(all, sight, hash);
    if (known == NULL) {
        name_natives(all, sight);
        if (python != NULL) {
            see_python(all, python, sight, true);
        }
        known = sight->has_memory ? insert(all, sight, hash) : NULL;
    }
    return known;
}

static uint32_t number_here(struct flw_callstacks *all, unsigned depth, bool enters_python)
{
    struct sight sight; /* two thousand bytes: unused parts are not cleared */
    enum hold hold = HOLD_NONE;
    int state = 0;
    sight.frame_count = 0;
    sight.depth = (unsigned)flw_clamp(depth, 1, FLW_CALLSTACK_DEPTH_MOST);
    sight.has_memory = true;
    see_native(all, &sight);
    const struct python *python = atomic_load_explicit(&all->python, memory_order_acquire);
    if (python == NULL && is_due(all)) {
        python = find_python(all);
    }
    if (python != NULL) {
        hold = hold_python(python, enters_python, &state);
    }
    const struct known *known = find_or_add(all, hold != HOLD_NONE ? python : NULL, &sight);
    if (hold == HOLD_TAKEN) {
        python->leave(state);
    }
    return known != NULL ? known->number : 0;
}

uint32_t flw_callstacks_here(struct flw_callstacks *all, unsigned depth, bool enters_python)
{
    uint32_t number = 0;
    int saved = errno;
    if (pthread_getspecific(inside_key) == NULL && pthread_setspecific(inside_key, all) == 0) {
        number = number_here(all, depth, enters_python);
        (void)pthread_setspecific(inside_key, NULL);
    }
    errno = saved;
    return number;
}

#define LOOKED (UINT64_C(1) << 32) /* the number is below, and may be 0 */

bool flw_callstack_look(unsigned depth, bool enters_python)
{
    struct flw_callstacks *all = flw_callstacks_shared();
    if (all == NULL || pthread_getspecific(seen_key) != NULL) {
        return false;
    }
    uint64_t number = flw_callstacks_here(all, depth, enters_python);
    int saved = errno;
    bool is_kept = pthread_setspecific(seen_key, (const void *)(uintptr_t)(LOOKED | number)) == 0;
    errno = saved;
    return is_kept;
}

void flw_callstack_end_look(void)
{
    (void)pthread_setspecific(seen_key, NULL);
}

uint32_t flw_callstack_seen(void)
{
    return atomic_load(&flw_callstack_recordings) == 0
               ? 0
               : (uint32_t)(uintptr_t)pthread_getspecific(seen_key);
}

struct flw_callstack flw_callstacks_get(struct flw_callstacks *all, uint32_t number)
{
    struct flw_callstack stack = {0};
    flw_lock_acquire(&all->lock);
    if (number > 0 && number <= all->stack_count) {
        stack = all->stacks[number - 1]->stack;
    }
    flw_lock_release(&all->lock);
    return stack;
}

struct flw_callframe flw_callstacks_frame(struct flw_callstacks *all, uint32_t frame)
{
    flw_lock_acquire(&all->lock);
    struct flw_callframe found = all->frames[frame];
    flw_lock_release(&all->lock);
    return found;
}

/* ---- begin and end */

/* The first call loads libraries, and so comes back here, with no lock held. Under ThreadSanitizer
 * a lock that libunwind takes at the end of a thread is taken after ThreadSanitizer's own end of
 * the thread, and crashes. */
static void find_unwinder(struct flw_callstacks *all)
{
    void *addresses[4];
    void *library = NULL;
#if !defined(__SANITIZE_THREAD__)
    if (!is_child) {
        library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    }
#endif
    void *address = library != NULL ? dlsym(library, "unw_backtrace") : NULL;
    all->unwind = backtrace;
    all->is_quick = address != NULL;
    if (address != NULL) {
        memcpy(&all->unwind, &address, sizeof address);
    }
    (void)all->unwind(addresses, 4);
}

static struct flw_callstacks *create(void)
{
    struct flw_callstacks *all = calloc(1, sizeof *all);
    void *buckets = calloc((size_t)1 << BUCKET_LOG2, sizeof *all->buckets);
    if (all == NULL || buckets == NULL) {
        free(all);
        free(buckets);
        return NULL;
    }
    all->buckets = buckets;
    flw_lock_init(&all->lock, FLW_RANK_RECORD);
    find_unwinder(all);
    all->own_module = module_of((const void *)(uintptr_t)&flw_callstacks_here);
    all->program = module_of((const void *)(uintptr_t)getauxval(AT_ENTRY));
    if (readlink("/proc/self/exe", all->program_path, sizeof all->program_path - 1) < 0) {
        all->program_path[0] = '\0';
    }
    if (find(&all->release, "free")) {
        (void)find(&all->demangle, "__cxa_demangle");
    }
    return all;
}

static _Atomic(struct flw_callstacks *) shared;
static struct flw_callstacks *forgotten; /* of a parent; reachable for leak checkers */
static pthread_once_t keys_once = PTHREAD_ONCE_INIT;
static bool has_keys;

static void make_keys(void)
{
    has_keys =
        pthread_key_create(&seen_key, NULL) == 0 && pthread_key_create(&inside_key, NULL) == 0;
}

/* Of two tables created at once one is freed: libraries are not loaded under a lock, since code of
 * a library being loaded may come here. */
struct flw_callstacks *flw_callstacks_shared(void)
{
    struct flw_callstacks *all = atomic_load_explicit(&shared, memory_order_acquire);
    struct flw_callstacks *there = NULL;
    if (all != NULL) {
        return all;
    }
    (void)pthread_once(&keys_once, make_keys);
    all = has_keys ? create() : NULL;
    if (all != NULL && !atomic_compare_exchange_strong(&shared, &there, all)) {
        free((void *)all->buckets);
        free(all);
        all = there;
    }
    return all;
}

void flw_callstacks_forget(void)
{
    struct flw_callstacks *all = atomic_exchange(&shared, NULL);
    is_child = true;
    if (all != NULL) {
        all->before = forgotten;
        forgotten = all;
    }
}

bool flw_callstacks_are_quick(const struct flw_callstacks *all)
{
    return all->is_quick;
}
