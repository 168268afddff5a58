"""Messages of collectors about a broker's MBeans.

In reading order: sample, collectors, messages, exporter_page.
"""
