/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/captures.h"

#include <pthread.h>

#include "heap/order/epoch.h"
#include "preload/live_contexts.h"
#include "preload/real.h"

#define CAPTURES_MAX 1024

static struct {
    pthread_mutex_t lock;
    struct {
        unsigned long long stream, context; /* 0: unused */
    } list[CAPTURES_MAX];
} captured = {.lock = PTHREAD_MUTEX_INITIALIZER};

void flw_captured_child(void)
{
    (void)pthread_mutex_init(&captured.lock, NULL);
}

unsigned long long flw_captured_name(CUstream stream)
{
    const struct flw_driver *driver = &flw_real.driver;
    unsigned long long id = 0;
    if (driver->cuStreamGetId != NULL && driver->cuStreamGetId(stream, &id) == CUDA_SUCCESS) {
        return id + 1;
    }
    return (unsigned long long)(uintptr_t)stream;
}

void flw_captured_begin(void)
{
    flw_captures_lock();
}

/* If the list is full the capture is never counted as ended: memory is held back, never allocated
 * too early. */
CUresult flw_captured_begun(CUstream stream, CUresult result)
{
    bool has_begun = result == CUDA_SUCCESS;
    flw_captures_unlock(has_begun);
    if (has_begun) {
        unsigned long long name = flw_captured_name(stream), context = flw_live_context_id_here();
        (void)pthread_mutex_lock(&captured.lock);
        for (unsigned i = 0; i < CAPTURES_MAX && has_begun; i++) {
            if (captured.list[i].stream == 0) {
                captured.list[i].stream = name;
                captured.list[i].context = context;
                has_begun = false;
            }
        }
        (void)pthread_mutex_unlock(&captured.lock);
    }
    return result;
}

static void take_out(bool by_stream, unsigned long long name)
{
    unsigned count = 0;
    (void)pthread_mutex_lock(&captured.lock);
    for (unsigned i = 0; i < CAPTURES_MAX; i++) {
        unsigned long long found = by_stream ? captured.list[i].stream : captured.list[i].context;
        if (captured.list[i].stream != 0 && found == name) {
            captured.list[i].stream = 0;
            count++;
        }
    }
    (void)pthread_mutex_unlock(&captured.lock);
    for (; count > 0; count--) {
        flw_captures_end();
    }
}

void flw_captured_over(unsigned long long name)
{
    if (flw_captures_are_open()) {
        take_out(true, name);
    }
}

void flw_captured_forget(unsigned long long context_id)
{
    if (flw_captures_are_open()) {
        take_out(false, context_id);
    }
}
