"""What is measured of a worker, in Prometheus' terms.

`catalogue` names every metric; `hearing` counts what an `Observer` hears; `looking` reads what stands at the moment of
a scrape; `exposing` asks both, and `text` makes of it what a scraper takes. All of it belongs to one worker: there is
no global registry, no thread and no timer. Counting costs a look into a dictionary; everything else is done at a
scrape.
"""
