// Calls `at_leaf` at the end of `depth` (1 to 100) frames of a hundred different functions.
#pragma once

void call_chain(int depth, void (*at_leaf)(void*), void* argument);
void call_chain_with_frame_pointers(int depth, void (*at_leaf)(void*), void* argument);
