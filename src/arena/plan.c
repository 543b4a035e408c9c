/* SPDX-License-Identifier: Apache-2.0 */
#include "arena/plan.h"
