#include "report/html/page.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "report/exports/gzip.hpp"

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

/// Every second map of each recording that is no peak's and no failure's. False: there was none.
bool drop_maps(PageData& page) {
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
            return !important.contains(map.moment) && number++ % 2 == 0;
        };
        const std::size_t gone = std::erase_if(recording.history.maps, unwanted);
        recording.history.maps_left_out += gone;
        dropped = dropped || gone != 0;
    }
    return dropped;
}

struct Data {
    std::string json;
    std::string encoded;
};

Data fitting_data(PageData& page, const PageOptions& options, std::size_t max_data) {
    std::size_t changes = max_page_changes / std::max<std::size_t>(page.recordings.size(), 1);
    while (true) {
        model::StringSink json;
        write_page_data(page, options, changes, json);
        Data data{std::move(json.text), {}};
        data.encoded = encoded(data.json);
        const std::size_t there = changes_of(page);
        if (data.encoded.size() <= max_data) {
            return data;
        }
        if (changes < max_page_changes / 16 && !drop_maps(page) && there == 0) {
            return data;
        }
        // The rest of the data stays, so this overshoots rather than takes many turns.
        changes = std::min(there, changes) * max_data / data.encoded.size() * 3 / 4;
    }
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
                      std::size_t max_data) {
    const std::size_t at = find_placeholder(empty_page);
    if (at == std::string_view::npos) {
        return {};
    }
    const std::string data = fitting_data(page, options, max_data).encoded;
    std::string text;
    text.reserve(empty_page.size() + data.size());
    text.append(empty_page.substr(0, at)).append(data);
    text.append(empty_page.substr(at + page_placeholder.size()));
    return text;
}

std::string page_json(PageData& page, const PageOptions& options, std::size_t max_data) {
    return fitting_data(page, options, max_data).json;
}

}  // namespace memlab::report
