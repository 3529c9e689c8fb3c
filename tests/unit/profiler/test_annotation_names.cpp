// The table of the program's names: the same name for the same text, bounded, whatever the threads.
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "profiler/annotation_names.hpp"
#include "tests/catch.hpp"

using memlab::profiler::AnnotationName;
using memlab::profiler::AnnotationNames;
using memlab::profiler::truncate_utf8;

TEST_CASE("the same text of the same domain is one name") {
    AnnotationNames names;
    const AnnotationName* const forward = names.find(AnnotationNames::own_domain, "forward");
    CHECK(forward->text == "forward");
    CHECK(names.find(AnnotationNames::own_domain, std::string("for") + "ward") == forward);
    CHECK(names.find(AnnotationNames::nvtx_domain, "forward") != forward);
    const std::uint32_t library = names.domain("NCCL");
    CHECK(names.domain("NCCL") == library);
    CHECK(names.domain("other") != library);
    CHECK(names.find(library, "reduce")->text == "NCCL:reduce");
    CHECK(names.find(library, "reduce")->domain == library);
    CHECK(names.find(AnnotationNames::own_domain, "")->text.empty());
}

TEST_CASE("new names without end are shortened, and beyond a bound share one") {
    AnnotationNames names;
    std::set<const AnnotationName*> different;
    for (int i = 0; i < 20000; ++i) {
        different.insert(names.find(AnnotationNames::own_domain, "step " + std::to_string(i)));
    }
    CHECK(different.size() == AnnotationNames::annotations.exact + 1);
    CHECK(names.find(AnnotationNames::own_domain, "step 19999")->text == "step #");
    CHECK(names.find(AnnotationNames::own_domain, "step 5")->text == "step 5");
    for (int i = 0; i < 20000; ++i) {
        std::string word;  // no digits to fold
        for (int rest = i + 1; rest != 0; rest /= 26) {
            word += static_cast<char>('a' + rest % 26);
        }
        different.insert(names.find(AnnotationNames::own_domain, word));
    }
    CHECK(different.size() == AnnotationNames::annotations.all + 1);
    CHECK(names.find(AnnotationNames::nvtx_domain, "yet another")->text == "(other names)");
    CHECK(names.find(AnnotationNames::own_domain, "step 5")->text == "step 5");
    for (std::uint32_t i = 0; i < 2 * AnnotationNames::max_domains; ++i) {
        CHECK(names.domain("domain " + std::to_string(i)) < AnnotationNames::max_domains);
    }
    CHECK(names.domain("one too many") == AnnotationNames::nvtx_domain);
}

TEST_CASE("the names of a large model's tensors are kept as they are") {
    AnnotationNames names(AnnotationNames::labels);
    for (int i = 0; i < 20000; ++i) {
        const std::string name = "Net.layers." + std::to_string(i) + ".weight";
        CHECK(names.find(AnnotationNames::own_domain, name)->text == name);
    }
}

TEST_CASE("a detail is kept as it is or not at all") {
    AnnotationNames details(AnnotationNames::details);
    const auto shape = [](std::size_t i) { return "float32[" + std::to_string(i) + "]"; };
    for (std::size_t i = 0; i < AnnotationNames::details.exact; ++i) {
        CHECK(details.find(AnnotationNames::own_domain, shape(i))->text == shape(i));
    }
    for (std::size_t i = 0; i < 100; ++i) {
        CHECK(details.find(AnnotationNames::own_domain, shape(1 << 20 | i))->text ==
              "(other names)");
    }
    CHECK(details.find(AnnotationNames::own_domain, shape(5))->text == shape(5));
}

TEST_CASE("text is cut between characters") {
    CHECK(truncate_utf8("abc", 3) == "abc");
    CHECK(truncate_utf8("abcd", 3) == "abc");
    CHECK(truncate_utf8("a\xc3\xa4", 2) == "a");
    CHECK(truncate_utf8("a\xe2\x82\xac", 3) == "a");
    CHECK(truncate_utf8("\xf0\x9f\x98\x80", 3).empty());
    // No UTF-8 at all: cut where it must be.
    CHECK(truncate_utf8("\x80\x80\x80\x80\x80\x80", 5).size() == 5);
    AnnotationNames names;
    CHECK(names.find(0, std::string(100 << 10, 'x'))->text.size() == AnnotationNames::max_bytes);
    CHECK(names.find(0, std::string(300, 'x')) == names.find(0, std::string(255, 'x')));
}

TEST_CASE("threads find the same names") {
    AnnotationNames names;
    constexpr int count = 600;  // more than the cache has places
    std::vector<std::vector<const AnnotationName*>> found(4);
    std::vector<std::thread> threads;
    threads.reserve(found.size());
    for (auto& mine : found) {
        threads.emplace_back([&names, &mine] {
            for (int round = 0; round < 20; ++round) {
                mine.clear();
                for (int i = 0; i < count; ++i) {
                    mine.push_back(
                        names.find(static_cast<std::uint32_t>(i % 2), "name " + std::to_string(i)));
                }
                names.domain("domain " + std::to_string(round));
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const auto& mine : found) {
        CHECK(mine == found[0]);
    }
}
