"""Reports that people look at: one page, a file for Perfetto, a table of what-ifs; all from what a replay tells."""
