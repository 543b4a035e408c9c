/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/ctxsync.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define CONTEXTS 64

struct place {
    const void *driver; /* one of its functions; NULL: unused */
    CUcontext context;
    uint32_t captures;
    bool is_syncing;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct place places[CONTEXTS];
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* mutex. NULL: every place is taken. */
static struct place *find(const struct flw_driver *driver, CUcontext context)
{
    struct place *unused = NULL;
    const void *name;
    memcpy(&name, &driver->cuEventRecord, sizeof name);
    for (struct place *place = table.places; place < table.places + CONTEXTS; place++) {
        if (place->driver == name && place->context == context) {
            return place;
        }
        if (unused == NULL && place->captures == 0 && !place->is_syncing) {
            unused = place;
        }
    }
    if (unused != NULL) {
        *unused = (struct place){.driver = name, .context = context};
    }
    return unused;
}

/* mutex. The place once nobody synchronises there. Who is cancelled ends after the call: here it would
 * take the mutex with it. */
static struct place *await(const struct flw_driver *driver, CUcontext context)
{
    struct place *place = find(driver, context);
    int before = PTHREAD_CANCEL_ENABLE;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    while (place != NULL && place->is_syncing) {
        (void)pthread_cond_wait(&table.changed, &table.mutex);
        place = find(driver, context); /* it may have been given away meanwhile */
    }
    (void)pthread_setcancelstate(before, NULL);
    return place;
}

void flw_ctxsync_announce(const struct flw_driver *driver, CUcontext context)
{
    (void)pthread_mutex_lock(&table.mutex);
    struct place *place = await(driver, context);
    if (place != NULL) {
        place->captures++;
    }
    (void)pthread_mutex_unlock(&table.mutex);
}

void flw_ctxsync_retract(const struct flw_driver *driver, CUcontext context)
{
    (void)pthread_mutex_lock(&table.mutex);
    struct place *place = find(driver, context);
    if (place != NULL && place->captures > 0) {
        place->captures--;
    }
    (void)pthread_mutex_unlock(&table.mutex);
}

/* mutex. NULL: nothing is kept apart there. */
static bool take(struct place *place)
{
    bool may = place == NULL || (place->captures == 0 && !place->is_syncing);
    if (place != NULL && may) {
        place->is_syncing = true;
    }
    return may;
}

bool flw_ctxsync_begin(const struct flw_driver *driver, CUcontext context)
{
    (void)pthread_mutex_lock(&table.mutex);
    bool may = take(await(driver, context));
    (void)pthread_mutex_unlock(&table.mutex);
    return may;
}

bool flw_ctxsync_try(const struct flw_driver *driver, CUcontext context)
{
    (void)pthread_mutex_lock(&table.mutex);
    bool may = take(find(driver, context));
    (void)pthread_mutex_unlock(&table.mutex);
    return may;
}

void flw_ctxsync_end(const struct flw_driver *driver, CUcontext context)
{
    (void)pthread_mutex_lock(&table.mutex);
    struct place *place = find(driver, context);
    if (place != NULL) {
        place->is_syncing = false;
    }
    (void)pthread_cond_broadcast(&table.changed);
    (void)pthread_mutex_unlock(&table.mutex);
}

void flw_ctxsync_renew(void)
{
    (void)pthread_mutex_init(&table.mutex, NULL);
    (void)pthread_cond_init(&table.changed, NULL);
    memset(table.places, 0, sizeof table.places);
}
