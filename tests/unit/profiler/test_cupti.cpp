// The parts of CUPTI's support that need no CUPTI: the audit, the search for the library, versions,
// buffers.
#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "profiler/cupti/audit.hpp"
#include "profiler/cupti/buffers.hpp"
#include "profiler/cupti/library.hpp"
#include "tests/catch.hpp"

using namespace memlab::profiler::cupti;

namespace {

Audit::Allocation seen(std::uint64_t address, std::uint32_t correlation = 1,
                       std::uint64_t time = 0) {
    return {.address = address, .bytes = 100, .monotonic_ns = time, .correlation = correlation};
}

std::size_t position(const std::vector<std::string>& paths, const std::string& path) {
    return static_cast<std::size_t>(std::find(paths.begin(), paths.end(), path) - paths.begin());
}

}  // namespace

TEST_CASE("an allocation and its CUPTI record cancel each other out in either order") {
    Audit audit;
    audit.add_known(16);
    audit.add_record(seen(16));
    audit.add_record(seen(32));
    CHECK(audit.has_pending());
    audit.add_known(32);
    CHECK(!audit.has_pending());
    const Audit::Result result = audit.result();
    CHECK(result.bypassed.empty());
    CHECK(result.records == 2);
    CHECK(result.bytes == 200);
    CHECK(result.known == 2);
    CHECK(!result.overflowed);
}

TEST_CASE("a reused address counts once for each use") {
    Audit audit;
    for (int i = 0; i < 5; ++i) {
        audit.add_known(16);
    }
    audit.add_bypass_call(2, 1, 1);
    audit.add_bypass_call(5, 1, 1);
    for (std::uint32_t i = 0; i < 7; ++i) {
        audit.add_record(seen(16, i + 1, i));
    }
    CHECK(audit.result().bypassed.size() == 2);
    CHECK(!audit.has_pending());
}

TEST_CASE(
    "a record of a call that bypassed memlab is not matched with memlab's own, and keeps its "
    "name") {
    Audit audit;
    audit.add_bypass_call(7, 3, 4);
    audit.add_record(seen(16, 7, 5));
    CHECK(!audit.has_pending());  // nobody will account for it
    audit.add_known(16);          // the same address later, by memlab
    audit.add_record(seen(16, 8, 6));
    const Audit::Result result = audit.result();
    REQUIRE(result.bypassed.size() == 1);
    CHECK(result.bypassed[0].record.correlation == 7);
    CHECK(result.bypassed[0].api == 3);
    CHECK(result.bypassed[0].stack == 4);
}

TEST_CASE("memory of a graph is not reported as bypassed, memory of an unknown caller is") {
    Audit audit;
    Audit::Allocation record = seen(16, 7);
    record.kind = memlab::trace::MemoryKind::async_pool;
    audit.add_record(record);
    CHECK(audit.result().bypassed.empty());
    record.correlation = 8;
    audit.add_bypass_call(8, 1, 1);
    audit.add_record(record);
    CHECK(audit.result().bypassed.size() == 1);
}

TEST_CASE("allocations without a CUPTI record are not reported as bypassed") {
    Audit audit;
    audit.add_known(16);
    audit.add_known(32);
    CHECK(audit.result().bypassed.empty());
}

TEST_CASE("whatever the order of the two ledgers, what only one of them has remains") {
    std::mt19937 random(5);
    for (int round = 0; round < 200; ++round) {
        struct Step {
            bool made;
            std::uint64_t address;
            std::uint32_t correlation;
        };
        std::vector<Step> steps;
        std::map<std::uint64_t, int> bypassed;
        std::uint32_t correlation = 0;
        std::vector<std::uint32_t> strangers;
        for (int i = 0; i < 60; ++i) {
            const std::uint64_t address = 512 * (1 + random() % 9);
            ++correlation;
            steps.push_back({false, address, correlation});
            if (random() % 4 == 0) {
                strangers.push_back(correlation);
                ++bypassed[address];
            } else {
                steps.push_back({true, address, 0});
            }
        }
        std::shuffle(steps.begin(), steps.end(), random);
        Audit audit;
        for (const std::uint32_t stranger : strangers) {
            audit.add_bypass_call(stranger, 1, 1);
        }
        for (const Step& step : steps) {
            if (step.made) {
                audit.add_known(step.address);
            } else {
                audit.add_record(seen(step.address, step.correlation));
            }
        }
        CHECK(!audit.has_pending());
        std::map<std::uint64_t, int> found;
        for (const Audit::Bypass& left : audit.result().bypassed) {
            CHECK(left.api == 1);
            ++found[left.record.address];
        }
        REQUIRE(found == bypassed);
    }
}

TEST_CASE("the audit ends when the ledgers exceed their bound") {
    Audit audit;
    for (std::uint64_t i = 0; i <= Audit::max_open; ++i) {
        audit.add_known(i * 512);
    }
    CHECK(audit.result().overflowed);
}

TEST_CASE("two threads feed one audit") {
    Audit audit;
    std::thread driver([&] {
        for (std::uint64_t i = 1; i <= 20000; ++i) {
            audit.add_record(seen(i % 50 * 512));
        }
    });
    for (std::uint64_t i = 1; i <= 20000; ++i) {
        audit.add_known(i % 50 * 512);
    }
    driver.join();
    CHECK(audit.result().bypassed.empty());
    CHECK(audit.result().records == 20000);
}

TEST_CASE("a CUPTI version is written as CUDA's documentation writes it") {
    CHECK(version_text(130001) == "13.0.1");
    CHECK(version_text(131102) == "13.11.2");
    CHECK(version_text(28) == "12.9 (API version 28)");
    CHECK(version_text(22) == "12.4 (API version 22)");
    CHECK(version_text(19) == "12.0 (API version 19)");
    CHECK(version_text(25) == "12 (API version 25)");
    CHECK(version_text(29) == "12 (API version 29)");
    CHECK(version_text(18) == "11 (API version 18)");
    CHECK(version_text(3) == "10 or older (API version 3)");
    CHECK(cuda_major(130000) == 13);
    CHECK(cuda_major(19) == 12);
    CHECK(cuda_major(13) == 11);
    CHECK(cuda_major(12) == 0);
}

TEST_CASE("CUPTI's libraries are recognized by file name") {
    CHECK(is_cupti_file("libcupti.so.13"));
    CHECK(is_cupti_file("libcupti.so"));
    CHECK(is_cupti_file("libcupti-0b1c2d.so.12"));
    CHECK(!is_cupti_file("libcuptihelper.so"));
    CHECK(!is_cupti_file("libcupti"));
    CHECK(!is_cupti_file("libcupti.a"));
    CHECK(!is_cupti_file("mylibcupti.so.13"));
}

TEST_CASE(
    "where libcupti is looked for: what is loaded, what belongs to it, the toolkit, the system") {
    const auto paths = candidate_paths({"/usr/lib/libc.so.6", "/opt/app/libcupti.so.13.0.48",
                                        "/env/lib/python3.12/site-packages/torch/lib/libtorch.so",
                                        "/opt/cuda/lib64/libcudart.so.13"},
                                       "/srv/cuda", nullptr, 13000);
    CHECK(paths.at(0) == "/opt/app/libcupti.so.13.0.48");
    const std::string packages = "/env/lib/python3.12/site-packages/nvidia/";
    const std::size_t pip = position(paths, packages + "cu13/lib/libcupti.so.13");
    const std::size_t old_pip = position(paths, packages + "cuda_cupti/lib/libcupti.so.13");
    const std::size_t home = position(paths, "/srv/cuda/extras/CUPTI/lib64/libcupti.so.13");
    const std::size_t beside = position(paths, "/opt/cuda/lib64/libcupti.so.13");
    const std::size_t system = position(paths, "libcupti.so.13");
    const std::size_t local = position(paths,
                                       "/usr/local/cuda/targets/x86_64-linux/lib/"
                                       "libcupti.so.13");
    CHECK(0 < pip);
    CHECK(pip < old_pip);
    CHECK(old_pip < beside);
    CHECK(beside < home);
    CHECK(home < system);
    CHECK(system < local);
    CHECK(local < paths.size());
    // A relative CUDA_HOME would mean another place after a chdir.
    CHECK(position(candidate_paths({}, "cuda", nullptr, 13000), "cuda/lib64/libcupti.so.13") ==
          candidate_paths({}, "cuda", nullptr, 13000).size());
}

TEST_CASE("a CUPTI that the driver is too old for is not looked for, the runtime's own is first") {
    const std::string packages = "/env/lib/python3.12/site-packages/nvidia/";
    const std::string cu12 = packages + "cuda_cupti/lib/libcupti.so.12";
    const std::string cu13 = packages + "cu13/lib/libcupti.so.13";
    const std::string torch = "/env/lib/python3.12/site-packages/torch/lib/libtorch.so";
    const std::string runtime = packages + "cuda_runtime/lib/libcudart.so.12";
    const auto on_12 = candidate_paths({torch}, "/srv/cuda", nullptr, 12040);
    CHECK(position(on_12, cu12) < on_12.size());
    CHECK(std::none_of(on_12.begin(), on_12.end(), [](const std::string& path) {
        return path.find("libcupti.so.13") != std::string::npos;
    }));
    const auto on_13 = candidate_paths({torch}, "/srv/cuda", nullptr, 13000);
    CHECK(position(on_13, cu13) < position(on_13, cu12));
    CHECK(position(on_13, "/srv/cuda/lib64/libcupti.so.12") < position(on_13, "libcupti.so.13"));
    CHECK(position(on_13, "libcupti.so.13") < position(on_13, "libcupti.so.12"));
    const auto of_12 = candidate_paths({torch, runtime}, nullptr, nullptr, 13000);
    CHECK(position(of_12, cu12) < position(of_12, cu13));
    CHECK(position(of_12, "libcupti.so.12") < position(of_12, "libcupti.so.13"));
    CHECK(position(of_12, cu13) < of_12.size());
    CHECK(candidate_paths({torch, runtime}, "/srv/cuda", nullptr, 11080).empty());
}

TEST_CASE("activity buffers are bounded and reused, and buffers of others are ignored") {
    BufferPool pool;
    std::vector<std::uint8_t*> taken;
    for (std::size_t i = 0; i < BufferPool::max_buffers; ++i) {
        taken.push_back(pool.acquire());
        REQUIRE(taken.back() != nullptr);
        taken.back()[BufferPool::buffer_bytes - 1] = 1;
        CHECK(reinterpret_cast<std::uintptr_t>(taken.back()) % 8 == 0);
    }
    CHECK(pool.acquire() == nullptr);
    std::uint8_t stranger = 0;
    pool.release(&stranger);
    CHECK(pool.acquire() == nullptr);
    pool.release(taken[3]);
    CHECK(pool.acquire() == taken[3]);
    CHECK(pool.acquire() == nullptr);
}
