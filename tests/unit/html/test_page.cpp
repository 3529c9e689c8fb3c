// The page itself: data in the place that is for them, no longer than asked for, whatever the
// names.
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/html/page.hpp"
#include "report/html/page_sources.hpp"
#include "tests/unit/report/recorded.hpp"

using namespace memlab::test;
using namespace memlab::model;
using namespace memlab::report;
using json = nlohmann::json;

namespace {

constexpr std::string_view empty_page =
    "<script id=\"memlab-data\">MEMLAB_DATA</script><p>MEMLAB_DATA</p>";

std::string from_base64(std::string_view text) {
    constexpr std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    unsigned bits = 0;
    int known = 0;
    for (const char c : text) {
        const std::size_t digit = digits.find(c);
        if (digit == std::string_view::npos) {
            REQUIRE(c == '=');
            break;
        }
        bits = bits << 6 | static_cast<unsigned>(digit);
        known += 6;
        if (known >= 8) {
            known -= 8;
            bytes += static_cast<char>(bits >> known & 0xff);
        }
    }
    return bytes;
}

std::string from_gzip(std::string bytes) {
    z_stream z{};
    REQUIRE(inflateInit2(&z, 15 + 16) == Z_OK);
    z.next_in = reinterpret_cast<unsigned char*>(bytes.data());
    z.avail_in = static_cast<uInt>(bytes.size());
    std::string text;
    int result = Z_OK;
    while (result == Z_OK) {
        std::vector<unsigned char> out(1 << 16);
        z.next_out = out.data();
        z.avail_out = static_cast<uInt>(out.size());
        result = inflate(&z, Z_NO_FLUSH);
        text.append(reinterpret_cast<const char*>(out.data()), out.size() - z.avail_out);
    }
    inflateEnd(&z);
    REQUIRE(result == Z_STREAM_END);
    return text;
}

class Made {
  public:
    explicit Made(const Recorded& recorded, bool sources = true) {
        options.sources = sources;
        options.suppressions = &default_suppressions();
        page.title = "A title";
        page.sources = sources;
        page.recordings.push_back(
            read_recording(recorded.log(), recorded.report, nullptr, options));
    }
    json data(std::size_t max_data = max_page_data) {
        return json::parse(page_json(page, options, max_data));
    }
    PageOptions options;
    PageData page;
};

/// Bytes of all sites of a device and kinds of memory that its curves count, by moment.
std::vector<std::uint64_t> sums(const json& recording, std::uint64_t device) {
    std::vector<std::uint64_t> sums(recording["moments"].size());
    const json& sites = recording["sites"];
    const json& holders = recording["holders"];
    for (std::size_t site = 0; site < sites["stack"].size(); ++site) {
        const auto kind = recording["strings"][sites["kind"][site].get<std::size_t>()];
        if (sites["device"][site] != device || !is_in_curves(kind)) {
            continue;
        }
        const auto end = holders["start"][site + 1].get<std::size_t>();
        for (auto i = holders["start"][site].get<std::size_t>(); i < end; ++i) {
            const std::size_t next =
                i + 1 < end ? holders["moment"][i + 1].get<std::size_t>() : sums.size();
            for (auto moment = holders["moment"][i].get<std::size_t>(); moment < next; ++moment) {
                sums[moment] += holders["bytes"][i].get<std::uint64_t>();
            }
        }
    }
    return sums;
}

void check_sums(const json& recording, const Recorded& recorded) {
    for (const Device& device : recorded.report.devices) {
        if (!device.used()) {
            continue;
        }
        const std::vector<std::uint64_t> held = sums(recording, device.index);
        const CurveSummary& allocated = device.curve(memlab::model::Curve::allocated);
        CHECK(held.back() == allocated.at_end_bytes);
        CHECK(*std::max_element(held.begin(), held.end()) == allocated.peak_bytes);
        for (const json& mark : recording["marks"]) {
            if (mark["kind"] == "mark") {
                continue;
            }
            const auto moment = mark["moment"].get<std::size_t>();
            CHECK(recording["moments"][moment] == mark["at"]);
        }
    }
}

}  // namespace

TEST_CASE("a page has its data as gzip in base64, and nothing else changes") {
    const Recorded recorded(PlausibleRecords::make(3, 400));
    Made made(recorded);
    const std::string text = make_page(empty_page, made.page, made.options);
    const std::size_t at = empty_page.find("MEMLAB_DATA");
    CHECK(text.substr(0, at) == empty_page.substr(0, at));
    const std::size_t end = text.find("</script>");
    CHECK(text.substr(end) == empty_page.substr(at + std::string_view("MEMLAB_DATA").size()));
    CHECK(from_gzip(from_base64(std::string_view(text).substr(at, end - at))) ==
          page_json(made.page, made.options));

    for (const std::string_view wrong :
         {"", "<p>MEMLAB_DATA</p>", "<a>MEMLAB_DATA</script><a>MEMLAB_DATA</script>"}) {
        CHECK(make_page(wrong, made.page, made.options).empty());
    }
}

TEST_CASE("the sites of a page add up to the curves, however few of them there is room for") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        const Recorded recorded(PlausibleRecords::make(seed, 600));
        Made made(recorded);
        const json whole = made.data();
        check_sums(whole["recordings"][0], recorded);
        const auto data_size = [&](Made& of, std::size_t max_data) {
            return make_page(empty_page, of.page, of.options, max_data).size() - empty_page.size() +
                   page_placeholder.size();
        };
        Made smallest(recorded);
        const std::size_t least = data_size(smallest, 1);
        const json summed = smallest.data(1);
        check_sums(summed["recordings"][0], recorded);
        const json& sites = summed["recordings"][0]["sites"]["stack"];
        const json& start = summed["recordings"][0]["holders"]["start"];
        for (std::size_t site = 0; site < sites.size(); ++site) {
            CHECK((sites[site].empty() || start[site] == start[site + 1]));
        }
        const std::size_t room = (least + data_size(made, max_page_data)) / 2;
        CHECK(data_size(made, room) <= room);
        const json cut = made.data(room);
        check_sums(cut["recordings"][0], recorded);
        CHECK(cut["recordings"][0]["holders"]["moment"].size() <
              whole["recordings"][0]["holders"]["moment"].size());
    }
}

TEST_CASE("any recording makes a page of whole JSON, with numbers that JavaScript has") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        CAPTURE(seed);
        WildRecords wild(seed);
        Records records;
        for (int i = 0; i < 400; ++i) {
            records.push_back(wild.next());
        }
        TemporaryFolder folder;
        const std::string log = folder / "wild.memlog";
        auto created = LogWriter::create(log, 0);
        REQUIRE(created.writer);
        feed(records, *created.writer);
        created.writer->close();
        ReadResult read = read_report(log);
        if (!read.report) {
            continue;
        }
        PageOptions options;
        options.suppressions = &default_suppressions();
        PageData page;
        page.recordings.push_back(read_recording(log, std::move(*read.report), nullptr, options));
        const json data = json::parse(page_json(page, options));
        const json& recording = data["recordings"][0];
        constexpr std::uint64_t most = (std::uint64_t{1} << 53) - 1;
        for (const json& curve : recording["curves"]) {
            for (const json& level : curve["levels"]) {
                CHECK(level["min"].size() == level["max"].size());
                CHECK(level["min"].size() == level["last"].size());
                for (const json& value : level["max"]) {
                    REQUIRE((value.is_null() || value.get<std::uint64_t>() <= most));
                }
            }
        }
        for (const json& stack : recording["sites"]["stack"]) {
            for (const json& frame : stack) {
                REQUIRE(frame.get<std::size_t>() < recording["frames"]["function"].size());
            }
        }
        for (const json& map : recording["maps"]) {
            REQUIRE(map["moment"].get<std::size_t>() < recording["moments"].size());
        }
        CHECK(make_page(empty_page, page, options).find("</script>") != std::string::npos);
    }
}

TEST_CASE("without sources a page has no arguments") {
    Records records = PlausibleRecords::make(1, 200);
    for (AnyRecord& record : records) {
        if (auto* process = std::get_if<ProcessInfo>(&record)) {
            process->executable = "/opt/app/train";
            process->arguments = {"./train", "--password=hunter2"};
        }
    }
    const Recorded recorded(std::move(records));
    Made with(recorded);
    CHECK(with.data()["recordings"][0]["command"] == json({"./train", "--password=hunter2"}));
    Made without(recorded, false);
    const json data = without.data();
    CHECK(data["recordings"][0]["command"] == json({"train"}));
    CHECK(data["files"].empty());
    CHECK(data.dump().find("hunter2") == std::string::npos);
}

TEST_CASE("source lines come with their surroundings, and of sources only") {
    TemporaryFolder folder;
    const auto write = [&](const std::string& name) {
        std::ofstream file(folder / name);
        for (int line = 1; line <= 100; ++line) {
            file << "line " << line << "\n";
        }
        return folder / name;
    };
    const std::string code = write("model.py");
    const std::string secret = write("id_rsa");
    const std::string hidden = write(".py");
    std::vector<std::string> newer;
    const std::vector<PageSource> sources = read_page_sources(
        {{code, {1, 20, 25, 60, 100, 4000}}, {secret, {5}}, {hidden, {5}}}, {}, 1, newer);
    REQUIRE(sources.size() == 4);
    CHECK(sources[0].first_line == 1);
    CHECK(sources[0].lines.size() == 9);
    CHECK(sources[1].first_line == 12);
    CHECK(sources[1].lines.front() == "line 12");
    CHECK(sources[1].lines.size() == 22);
    CHECK(sources[2].first_line == 52);
    CHECK(sources[3].first_line == 92);
    CHECK(sources[3].lines.back() == "line 100");
    for (const PageSource& source : sources) {
        CHECK(source.path == code);
    }
    CHECK(newer == std::vector<std::string>{code});
}
