"""What collectors say of a broker's MBeans.

In reading order: sample, collectors, messages, exporter_page.
"""
