/* SPDX-License-Identifier: Apache-2.0 */
#include "quiescence.h"

int main(int count, char **words)
{
    return stress_quiescence(count, words);
}
