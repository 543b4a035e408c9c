/* SPDX-License-Identifier: Apache-2.0 */
#include "common/frame.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "common/command.h"

static const char *const package_folders[] = {"/site-packages/", "/dist-packages/", NULL};

bool flw_frame_has_folder(const char *file, const char *folder)
{
    size_t bytes = strlen(folder);
    if (strncmp(file, folder + 1, bytes - 1) == 0) {
        return true; /* a path that is not absolute */
    }
    for (const char *at = file; *at != '\0'; at++) {
        size_t i = 0;
        while (i < bytes && (at[i] == folder[i] || (at[i] == '\\' && folder[i] == '/'))) {
            i++;
        }
        if (i == bytes) {
            return true;
        }
    }
    return false;
}

static bool has_any(const char *file, const char *const *folders)
{
    while (*folders != NULL && !flw_frame_has_folder(file, *folders)) {
        folders++;
    }
    return *folders != NULL;
}

/* True for files of Python's own modules, by name, because profiles omit the folder of modules. */
static bool is_standard_module(const char *file)
{
    static const char *const names[] = {"abc.py",       "asyncio/",     "collections/",
                                        "concurrent/",  "copy.py",      "dataclasses.py",
                                        "enum.py",      "functools.py", "inspect.py",
                                        "logging/",     "random.py",    "runpy.py",
                                        "threading.py", "typing.py",    "unittest/",
                                        "warnings.py",  "weakref.py",   NULL};
    return flw_begins_with_any(file, names);
}

/* Return the kind of a frame of Python; NATIVE: it is none. Generated code has no file, or a file in a cache. */
static enum flw_frame_kind kind_of_python(const char *file)
{
    static const char *const frameworks[] = {"/torch/",         "/triton/",          "/numpy/",
                                             "/torchinductor_", "/functorch/",       "/importlib/",
                                             "/contextlib.py",  "/multiprocessing/", NULL};
    static const char *const standard[] = {"/lib/python", "/Lib/", "/cpython-", NULL};
    size_t bytes = strlen(file);
    if (file[0] == '<') {
        return FLW_FRAME_OTHER; /* <string>, <frozen ...>, <eval_with_key> */
    }
    if (bytes < 3 || strcmp(file + bytes - 3, ".py") != 0) {
        return FLW_FRAME_NATIVE;
    }
    bool is_package = has_any(file, package_folders);
    const char *inside = is_package ? strstr(file, "-packages") : file;
    return is_standard_module(file) || has_any(inside, frameworks) ||
                   (!is_package && has_any(file, standard))
               ? FLW_FRAME_LIBRARY
           : is_package ? FLW_FRAME_PACKAGE
                        : FLW_FRAME_PROGRAM;
}

/* Find the identifier that ends at `end`. Returns its bytes. */
static size_t word_before(const char *text, const char *end, const char **out_begin)
{
    const char *begin = end;
    while (begin > text && (isalnum((unsigned char)begin[-1]) || begin[-1] == '_')) {
        begin--;
    }
    *out_begin = begin;
    return (size_t)(end - begin);
}

/* Recognise torch::autograd::generated::MmBackward0::apply(...), and in profiles "autograd::engine::evaluate_function:
 * MmBackward0". */
static bool is_node(const char *function, char *out, size_t room)
{
    static const char prefix[] = "autograd::engine::evaluate_function: ";
    const char *begin, *apply = strstr(function, "::apply(");
    if (strncmp(function, prefix, sizeof prefix - 1) == 0) {
        snprintf(out, room, "%s", function + sizeof prefix - 1);
        return out[0] != '\0';
    }
    if (apply == NULL || strstr(function, "autograd::") == NULL) {
        return false;
    }
    size_t bytes = word_before(function, apply, &begin);
    snprintf(out, room, "%.*s", (int)flw_min(bytes, room), begin);
    return bytes > 0;
}

/* Recognise at::_ops::bmm::call(...), and in profiles "aten::bmm". */
static bool is_operator(const char *function, char *out, size_t room)
{
    static const char prefix[] = "at::_ops::", short_prefix[] = "aten::";
    bool is_short = strncmp(function, short_prefix, sizeof short_prefix - 1) == 0;
    if (!is_short && strncmp(function, prefix, sizeof prefix - 1) != 0) {
        return false;
    }
    const char *name = function + (is_short ? sizeof short_prefix : sizeof prefix) - 1;
    size_t bytes = strcspn(name, ":");
    snprintf(out, room, "aten::%.*s", (int)flw_min(bytes, room), name);
    return bytes > 0;
}

const char *flw_frame_base_name(const char *file)
{
    const char *base = file;
    for (const char *at = file; *at != '\0'; at++) {
        base = *at == '/' || *at == '\\' ? at + 1 : base;
    }
    return base;
}

/* True for a function of the program, by name and by file, which is a source file or "module+0x1234". */
static bool is_native_program(const char *function, const char *file)
{
    /* Python and the C library are built with relative paths, which are also usual in other programs. */
    static const char *const roots[] = {
        "/usr/",     "/lib/",   "/lib64/",       "Python/", "Objects/", "Modules/", "Include/",
        "Programs/", "csu/",    "nptl/",         "stdlib/", "posix/",   "sysdeps/", "elf/",
        "signal/",   "setjmp/", "libstdc++-v3/", "libgcc/", NULL};
    static const char *const modules[] = {"libcuda", "libtorch",  "libc10",    "libpython",
                                          "libnv",   "libcublas", "libfallow", NULL};
    static const char *const functions[] = {"_Py",      "Py",   "__libc_", "_start",
                                            "_ctypes_", "ffi_", NULL};
    while (strncmp(file, "./", 2) == 0 || strncmp(file, "../", 3) == 0) {
        file += file[1] == '/' ? 2 : 3;
    }
    return file[0] != '\0' && !flw_begins_with_any(file, roots) &&
           !flw_begins_with_any(flw_frame_base_name(file), modules) &&
           strstr(flw_frame_base_name(file), ".cpython-") == NULL &&
           strstr(file, "/Python-") == NULL && strstr(file, "/sysdeps/") == NULL &&
           !flw_begins_with_any(function, functions);
}

enum flw_frame_kind flw_frame_tell(const char *function, const char *file, bool has_native,
                                   char *name, size_t room)
{
    enum flw_frame_kind kind = kind_of_python(file);
    return kind != FLW_FRAME_NATIVE                          ? kind
           : is_node(function, name, room)                   ? FLW_FRAME_NODE
           : is_operator(function, name, room)               ? FLW_FRAME_OPERATOR
           : has_native && is_native_program(function, file) ? FLW_FRAME_NATIVE
                                                             : FLW_FRAME_OTHER;
}

bool flw_frame_is_better(enum flw_frame_kind kind, enum flw_frame_kind best)
{
    return kind != FLW_FRAME_OTHER &&
           (best == FLW_FRAME_OTHER || kind < best || (kind == best && kind == FLW_FRAME_OPERATOR));
}

/* ---- names ---- */

void flw_frame_name_module(const char *file, char *out, size_t room)
{
    const char *base = flw_frame_base_name(file), *end = base, *begin = base;
    if (has_any(file, package_folders)) {
        begin = strstr(file, "-packages") + strlen("-packages/");
        end = begin + strcspn(begin, "/\\");
    } else if (base > file + 1) {
        end = base - 1;
        for (begin = end; begin > file && begin[-1] != '/' && begin[-1] != '\\';) {
            begin--;
        }
    }
    if (begin == end) { /* a file in no folder */
        end = begin + strlen(begin);
    }
    size_t bytes = (size_t)(end - begin);
    bytes -= bytes > 3 && strncmp(end - 3, ".py", 3) == 0 ? 3 : 0;
    snprintf(out, room, "%.*s", (int)flw_min(bytes, room), begin);
}

const char *flw_frame_local_name(const char *function)
{
    static const char mark[] = "<locals>.";
    for (const char *at; (at = strstr(function, mark)) != NULL;) {
        function = at + sizeof mark - 1;
    }
    return function;
}

void flw_frame_say_place(const char *function, const char *file, uint32_t line, char *out,
                         size_t room)
{
    bool is_module = line == 0 && strstr(file, "+0x") != NULL; /* with an offset */
    if (!is_module) {
        snprintf(out, room, "%s (%s:%u)", function, file, line);
    } else {
        bool is_named = function[0] != '\0';
        snprintf(out, room, "%s%s%s%s", function, is_named ? " (" : "", file, is_named ? ")" : "");
    }
}
