// PYTORCH_ALLOC_CONF as memlab's options.
#include "interpose/options/pytorch_conf.hpp"

#include "tests/catch.hpp"

using memlab::interpose::parse_pytorch_conf;
using Options = std::vector<std::pair<std::string, std::string>>;

TEST_CASE("each key that applies to a pool") {
    CHECK(parse_pytorch_conf("max_split_size_mb:512") ==
          Options{{"MEMLAB_MAX_SPLIT_SIZE_MB", "512"}});
    CHECK(parse_pytorch_conf("garbage_collection_threshold:0.8, max_non_split_rounding_mb:40") ==
          Options{{"MEMLAB_GC_THRESHOLD", "0.8"}, {"MEMLAB_MAX_NON_SPLIT_ROUNDING_MB", "40"}});
    CHECK(parse_pytorch_conf("expandable_segments:True") == Options{{"MEMLAB_BACKEND", "vmm"}});
    CHECK(parse_pytorch_conf("expandable_segments:False") ==
          Options{{"MEMLAB_BACKEND", "classic"}});
    CHECK(parse_pytorch_conf(
              "roundup_power2_divisions:[256:1, 512:2,>:8],large_segment_size_mb:64") ==
          Options{{"MEMLAB_ROUNDUP_POWER2_DIVISIONS", "[256:1,512:2,>:8]"},
                  {"MEMLAB_LARGE_SEGMENT_SIZE_MB", "64"}});
}

TEST_CASE("other keys and malformed pairs are ignored") {
    CHECK(parse_pytorch_conf("").empty());
    CHECK(parse_pytorch_conf("backend:native,pinned_use_cuda_host_register:True").empty());
    CHECK(parse_pytorch_conf("max_split_size_mb").empty());
    CHECK(parse_pytorch_conf(",,:,max_split_size_mb:64,") ==
          Options{{"MEMLAB_MAX_SPLIT_SIZE_MB", "64"}});
}
