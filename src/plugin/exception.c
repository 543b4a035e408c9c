/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/exception.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- symbols */

enum {
    CXA_ALLOCATE,
    CXA_FREE,
    CXA_INIT,
    CXA_GLOBALS,
    UNWIND_RAISE,
    RUNTIME_COUNT
};

/* Functions of libstdc++ and of the unwinder. __cxa_throw is __cxa_init_primary_exception, a count of
 * exceptions under way and _Unwind_RaiseException, but __cxa_throw ends the process if no caller handles the
 * exception. */
static const char *const runtime_names[RUNTIME_COUNT] = {
    "__cxa_allocate_exception", "__cxa_free_exception", "__cxa_init_primary_exception",
    "__cxa_get_globals", "_Unwind_RaiseException"};

enum {
    VTABLE,
    TYPE,
    CLASS_COUNT
};

static const char *const memory_names[CLASS_COUNT] = {"_ZTVN3c1016OutOfMemoryErrorE",
                                                      "_ZTIN3c1016OutOfMemoryErrorE"};
static const char *const error_names[CLASS_COUNT] = {"_ZTVN3c105ErrorE", "_ZTIN3c105ErrorE"};
static const char *const bad_alloc_names[CLASS_COUNT] = {"_ZTVSt9bad_alloc", "_ZTISt9bad_alloc"};

enum {
    ERROR_INIT,
    STRING_INIT,
    STRING_END,
    ERROR_COUNT
};

/* c10::Error::Error(SourceLocation, std::string); std::string(const char *, size_t, allocator), ~std::string. Of
 * either ABI of libstdc++: PyTorch's packages had the older one up to 2.5. */
static const char *const init_names[][ERROR_COUNT] = {
    {"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
     "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcmRKS3_",
     "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev"},
    {"_ZN3c105ErrorC1ENS_14SourceLocationESs", "_ZNSsC1EPKcmRKSaIcE", "_ZNSsD1Ev"}};

/* Find all names in a library. dlsym also searches the libraries that the library depends on. */
static bool find_all(void *library, const char *const *names, size_t count, void **out)
{
    bool is_found = true;
    for (size_t i = 0; i < count && is_found; i++) {
        out[i] = dlsym(library, names[i]);
        is_found = out[i] != NULL;
    }
    return is_found;
}

/* Return a library that is already loaded, and stays loaded without the handle. NULL: not loaded. */
static void *find_loaded(const char *name)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL) {
        (void)dlclose(library);
    }
    return library;
}

/* Convert an address to a function, for which C has no conversion. */
#define CALL(address, ...) (*(__typeof__(__VA_ARGS__) *)(void *)&(address))

/* ---- throwing */

/* Size of _Unwind_Exception, which precedes every exception in the C++ ABI of Itanium. */
#define UNWIND_HEADER_BYTES 32

struct exception_globals {
    void *caught;
    unsigned uncaught_count;
};

/* Returns if no caller handles the exception; the object then stays alive. */
static void raise_exception(void **runtime, void *object, void *type, void (*end)(void *))
{
    int *reference_count =
        CALL(runtime[CXA_INIT], int *(*)(void *, void *, void (*)(void *)))(object, type, end);
    struct exception_globals *globals =
        CALL(runtime[CXA_GLOBALS], struct exception_globals * (*)(void))();
    *reference_count = 1;
    globals->uncaught_count++;
    (void)CALL(runtime[UNWIND_RAISE], int (*)(void *))((char *)object - UNWIND_HEADER_BYTES);
    globals->uncaught_count--;
}

/* Return the functions of a vtable, as an object points to them: after the offset and the type. The first two functions
 * are the destructors. */
static void **functions_of(void *vtable)
{
    return (void **)vtable + 2;
}

/* ---- PyTorch's */

/* More than a c10::Error of any release, which has about 150 bytes. */
#define ERROR_BYTES  1024
#define STRING_BYTES 64 /* more than a std::string */

/* c10::SourceLocation. */
struct source_location {
    const char *function, *file;
    uint32_t line;
};

/* A std::string by value is the address of one that the caller destroys. */
static void init_error(void **init, void *error, const char *message)
{
    _Alignas(16) char text[STRING_BYTES], allocator = 0;
    const struct source_location here = {"fallow_torch_alloc", "src/plugin/torch.c", 0};
    CALL(init[STRING_INIT], void (*)(void *, const char *, size_t, const void *))
    (text, message, strlen(message), &allocator);
    CALL(init[ERROR_INIT], void (*)(void *, struct source_location, void *))(error, here, text);
    CALL(init[STRING_END], void (*)(void *))(text);
}

/* False: a symbol is missing. True: no caller handles the exception. */
static bool throw_error(void *library, const char *const *names, const char *message)
{
    void *runtime[RUNTIME_COUNT], *class_of[CLASS_COUNT], *init[ERROR_COUNT];
    if (library == NULL || !find_all(library, runtime_names, RUNTIME_COUNT, runtime) ||
        !find_all(library, names, CLASS_COUNT, class_of) ||
        !(find_all(library, init_names[0], ERROR_COUNT, init) ||
          find_all(library, init_names[1], ERROR_COUNT, init))) {
        return false;
    }
    void *error = CALL(runtime[CXA_ALLOCATE], void *(*)(size_t))(ERROR_BYTES);
    void **functions = functions_of(class_of[VTABLE]);
    init_error(init, error, message);
    memcpy(error, &functions, sizeof functions); /* derived classes add nothing else */
    raise_exception(runtime, error, class_of[TYPE], CALL(functions[0], void (*)(void *)));
    CALL(functions[0], void (*)(void *))(error);
    CALL(runtime[CXA_FREE], void (*)(void *))(error);
    return true;
}

/* ---- the C++ library's */

static void throw_bad_alloc(void *library)
{
    void *runtime[RUNTIME_COUNT], *class_of[CLASS_COUNT];
    if (!find_all(library, runtime_names, RUNTIME_COUNT, runtime) ||
        !find_all(library, bad_alloc_names, CLASS_COUNT, class_of)) {
        return;
    }
    void **functions = functions_of(class_of[VTABLE]);
    void *error = CALL(runtime[CXA_ALLOCATE], void *(*)(size_t))(sizeof functions);
    memcpy(error, &functions, sizeof functions);
    raise_exception(runtime, error, class_of[TYPE], CALL(functions[0], void (*)(void *)));
    CALL(runtime[CXA_FREE], void (*)(void *))(error);
}

void flw_plugin_throw(bool is_memory, const char *message)
{
    const char *const *names = is_memory ? memory_names : error_names;
    int saved = errno;
    void *library = find_loaded("libstdc++.so.6"), *other = NULL;
    if (throw_error(find_loaded("libc10_cuda.so"), names, message) ||
        throw_error(find_loaded("libc10.so"), names, message)) {
        /* no caller handles it */
    } else if (library != NULL) {
        throw_bad_alloc(library);
    } else if ((other = dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv")) != NULL) {
        CALL(other, void (*)(void))
        (); /* of another runtime; ends the process if no caller
                                           handles it */
    }
    errno = saved;
}
