/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Initialisation classes: what borrowed memory must contain before a kernel reads it.
 */
#ifndef FALLOW_INIT_CLASS_H
#define FALLOW_INIT_CLASS_H

/** What an output may contain before the module runs, and what the module guarantees. */
typedef enum fallow_init_class {
    FALLOW_INIT_DIRTY = 0, /**< fully written before it is read */
    FALLOW_INIT_PREFIX,    /**< fully written up to a length on the device; not read beyond it */
    FALLOW_INIT_ONCE,      /**< constant, written once, only read later */
    FALLOW_INIT_LEADING_ZERO, /**< element 0 of each row must be 0; the producer of the row writes it each time */
    FALLOW_INIT_COUNTER,     /**< zero at the first use; the kernel that uses it restores zero */
    FALLOW_INIT_ZERO,        /**< zero at every launch; fused into the kernel before */
    FALLOW_INIT_SENTINEL,    /**< unfilled slots hold a sentinel, written by the producer */
    FALLOW_INIT_VALID_TAIL,  /**< the tail is a legal index or length, written by the producer */
    FALLOW_INIT_NEUTRAL_TAIL /**< the tail is finite or neutral, written by the producer */
} fallow_init_class;

#endif
