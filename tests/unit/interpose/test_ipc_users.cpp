// Detection of libraries that share device memory with other processes.
#include "interpose/process/ipc_users.hpp"

#include "tests/catch.hpp"

using namespace memlab::interpose;

TEST_CASE("libraries are recognized by their file name prefix") {
    for (const char* user :
         {"libucp.so", "libucp.so.0", "libuct.so.0.0.0", "libmpi.so.40", "libmpi_cray.so.12",
          "libmpich.so.12", "libmpifort.so.12", "liboshmem.so.40"}) {
        INFO(user);
        CHECK(is_ipc_user(user));
    }
    for (const char* other :
         {"", "libc.so.6", "libucpp.so", "libmpfr.so.6", "libmpc.so.3", "libnccl.so.2",
          "libnvshmem_host.so.3", "libcuda.so.1", "mylibmpi.so", "libmpiP.so"}) {
        INFO(other);
        CHECK_FALSE(is_ipc_user(other));
    }
}

TEST_CASE("a process without such a library has none, also on repeated searches") {
    IpcUsers users;
    IpcUsers::Name name{};
    CHECK_FALSE(users.look(&name));
    CHECK_FALSE(users.look(&name));
    CHECK(name[0] == '\0');
}
