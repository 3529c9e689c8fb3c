#include "report/html/page.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "report/exports/gzip.hpp"
#include "report/text/units.hpp"

// page_asset.S
extern "C" const char memlab_html_page[];
extern "C" const char memlab_html_page_end[];

namespace memlab::report {

namespace {

/// Base64 of what it is given. May throw std::bad_alloc.
class Base64Sink final : public model::ByteSink {
  public:
    bool write(const char* data, std::size_t size) override {
        for (std::size_t i = 0; i < size; ++i) {
            bits_ = bits_ << 8 | static_cast<unsigned char>(data[i]);
            if (++bytes_ == 3) {
                flush();
            }
        }
        return true;
    }
    std::string finish() {
        if (bytes_ != 0) {
            const unsigned missing = 3 - bytes_;
            bits_ <<= 8 * missing;
            flush();
            std::fill(text_.end() - missing, text_.end(), '=');
        }
        return std::move(text_);
    }

  private:
    void flush() {
        constexpr char digits[] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for (const unsigned shift : {18U, 12U, 6U, 0U}) {
            text_ += digits[bits_ >> shift & 0x3f];
        }
        bits_ = 0;
        bytes_ = 0;
    }

    std::string text_;
    unsigned bits_ = 0;
    unsigned bytes_ = 0;
};

/// The data as they stand in a page.
std::string encoded(std::string_view json) {
    Base64Sink base64;
    exports::GzipSink gzip(base64);
    gzip.write(json.data(), json.size());
    gzip.finish();
    return base64.finish();
}

std::size_t changes_of(const PageData& page) {
    std::size_t most = 0;
    for (const PageRecording& recording : page.recordings) {
        std::size_t changes = 0;
        for (const History::Holder& holder : recording.history.holders) {
            changes += holder.changes.size();
        }
        most = std::max(most, changes);
    }
    return most;
}

/// Every second map of each recording that is no peak's and no failure's, or all. False: there was
/// none.
bool drop_maps(PageData& page, bool all) {
    bool dropped = false;
    for (PageRecording& recording : page.recordings) {
        std::set<std::size_t> important;
        for (const History::Event& event : recording.history.events) {
            if (event.moment && event.what != History::What::mark) {
                important.insert(*event.moment);
            }
        }
        std::size_t number = 0;
        const auto unwanted = [&](const History::Map& map) {
            return !important.contains(map.moment) && (all || number++ % 2 == 0);
        };
        const std::size_t gone = std::erase_if(recording.history.maps, unwanted);
        recording.history.maps_left_out += gone;
        dropped = dropped || gone != 0;
    }
    return dropped;
}

std::vector<History> histories_of(const PageData& page) {
    std::vector<History> histories;
    for (const PageRecording& recording : page.recordings) {
        histories.push_back(recording.history);
    }
    return histories;
}

struct Data {
    std::string json;
    std::string encoded;
    std::string too_large;  ///< what takes most of it where it does not fit; empty: it does
};

/// The parts that take most of the data: "figures of the views 3.1 MiB, marks 2.0 MiB".
std::string largest_of(const PageParts& parts) {
    std::vector<std::pair<std::size_t, std::string_view>> sorted;
    for (const auto& [name, size] : parts) {
        sorted.emplace_back(size, name);
    }
    std::sort(sorted.rbegin(), sorted.rend());
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(sorted.size(), 2); ++i) {
        text.append(i == 0 ? "" : ", ").append(sorted[i].second).append(" ");
        text += format_bytes(sorted[i].first);
    }
    return text;
}

Data make_data(PageData& page, const PageOptions& options, std::size_t changes,
               std::size_t max_data) {
    model::StringSink json;
    const PageParts parts = write_page_data(page, options, changes, json);
    Data data{std::move(json.text), {}, {}};
    data.encoded = encoded(data.json);
    if (data.encoded.size() > max_data) {
        data.too_large = largest_of(parts);
    }
    return data;
}

Data fit_data(PageData& page, const PageOptions& options, std::size_t max_data) {
    std::size_t changes = max_page_changes / std::max<std::size_t>(page.recordings.size(), 1);
    Data data = make_data(page, options, changes, max_data);
    const std::size_t all = data.encoded.size();
    if (data.too_large.empty()) {
        return data;
    }
    // What is left when all is summed says how much room there is for the changes.
    std::vector<History> whole = histories_of(page);
    changes = std::min(changes_of(page), changes);
    const auto make_least = [&] {
        drop_maps(page, true);
        return make_data(page, options, 0, max_data);
    };
    Data least = make_least();
    if (!least.too_large.empty() || all <= least.encoded.size()) {
        return least;
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
        page.recordings[i].history = std::move(whole[i]);
    }
    const std::size_t room = max_data - least.encoded.size();
    changes = changes * room / (all - least.encoded.size());
    constexpr int most_turns = 6;  // at each the whole page is packed
    for (int turn = 0; turn < most_turns; ++turn) {
        // Changes are packed the worse the fewer they are.
        changes = changes * 3 / 4;
        if (changes < max_page_changes / 16) {
            drop_maps(page, false);
        }
        data = make_data(page, options, changes, max_data);
        if (data.too_large.empty()) {
            return data;
        }
        changes = std::min(changes, changes * max_data / data.encoded.size());
    }
    return make_least();
}

Data fitting_data(PageData& page, const PageOptions& options, std::size_t max_data,
                  std::string* too_large) {
    Data data = fit_data(page, options, max_data);
    if (too_large != nullptr) {
        *too_large = data.too_large;
    }
    return data;
}

}  // namespace

std::string_view built_in_page() {
    return {memlab_html_page, static_cast<std::size_t>(memlab_html_page_end - memlab_html_page)};
}

std::size_t find_placeholder(std::string_view page) {
    const std::string element = ">" + std::string(page_placeholder) + "</script>";
    const std::size_t at = page.find(element);
    const bool once =
        at != std::string_view::npos && page.find(element, at + 1) == std::string_view::npos;
    return once ? at + 1 : std::string_view::npos;
}

std::string make_page(std::string_view empty_page, PageData& page, const PageOptions& options,
                      std::size_t max_data, std::string* too_large) {
    const std::size_t at = find_placeholder(empty_page);
    if (at == std::string_view::npos) {
        return {};
    }
    const std::string data = fitting_data(page, options, max_data, too_large).encoded;
    std::string text;
    text.reserve(empty_page.size() + data.size());
    text.append(empty_page.substr(0, at)).append(data);
    text.append(empty_page.substr(at + page_placeholder.size()));
    return text;
}

std::string page_json(PageData& page, const PageOptions& options, std::size_t max_data,
                      std::string* too_large) {
    return fitting_data(page, options, max_data, too_large).json;
}

}  // namespace memlab::report
