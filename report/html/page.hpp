// The page: one file with everything in it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "report/html/page_data.hpp"

namespace memlab::report {

/// The page that was built into this program, without data; empty: it was built without Node.js.
std::string_view built_in_page();

/// What stands in a page where its data belong, as all of a script element.
inline constexpr std::string_view page_placeholder = "MEMLAB_DATA";

/// npos if there is not exactly one.
std::size_t find_placeholder(std::string_view page);

/// Bytes of data in a page, as they stand there.
inline constexpr std::size_t max_page_data = 4'600'000;

/// Changes of holders that a page has of all recordings together, if they fit.
inline constexpr std::size_t max_page_changes = 400'000;

/// `empty_page` with the data of `page` in it. Sites are summed until the data are no longer than
/// `max_data`, or nothing is left to sum: `too_large` then says what takes most of them; else it is
/// empty. Empty without a placeholder. May throw std::bad_alloc.
std::string make_page(std::string_view empty_page, PageData& page, const PageOptions& options,
                      std::size_t max_data = max_page_data, std::string* too_large = nullptr);

/// The data alone, as JSON, of the same contents as in a page. Ends with a newline.
std::string page_json(PageData& page, const PageOptions& options,
                      std::size_t max_data = max_page_data, std::string* too_large = nullptr);

}  // namespace memlab::report
