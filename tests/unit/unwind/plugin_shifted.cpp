// plugin_one.cpp's function in a library of the same size, with everything a little farther on.
extern "C" __attribute__((visibility("default"), noipa)) int plugin_before(int number) {
    return number + 1;
}

extern "C" __attribute__((visibility("default"))) const char plugin_data[200] = {1};

#include "tests/unit/unwind/plugin_one.cpp"
