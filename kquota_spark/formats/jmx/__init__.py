"""What collectors say of a broker's MBeans.

In reading order: sample, jmxtrans, jolokia, metricbeat, telegraf, messages.
"""
