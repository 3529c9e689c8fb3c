// Whether what an exporter or a report for CI wrote can be read by whoever reads it: quick checks
// of the grammar of each format, for millions of inputs. The figures are looked at elsewhere
// (tests/cli/test_export.py).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace memlab::fuzz {

/// UTF-8 without control characters except the line break.
bool is_clean_text(std::string_view text);

bool is_json(const std::string& text);

/// One element around all others, which are closed in their order; attributes in quotes and once
/// each; no character that XML has not.
bool is_xml(std::string_view text);

/// Lines of "frame;frame weight", or of more weights, of which not all are 0.
bool is_folded(std::string_view text, std::size_t weights = 1);

/// A gzip file of one message of protocol buffers with fields of profile.proto's two wire types.
bool is_pprof(const std::string& bytes);

/// Packets of a Perfetto trace: the clock first, then packets of sequences, which begin with their
/// clock, with events of tracks that were described.
bool is_perfetto(std::string_view bytes);

/// A pickle of protocol 2 that leaves one value, by the operations that plain data needs.
bool is_pickle(std::string_view bytes);

/// Families of "# HELP", "# TYPE", samples with labels in quotes, and the end.
bool is_openmetrics(std::string_view text);

/// A heading of six names, and rows of six fields without quotes.
bool is_rmm_csv(std::string_view text);

}  // namespace memlab::fuzz
