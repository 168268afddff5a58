"""Lines of the broker's request log, in its JSON form and its text form.

In reading order: request, charged_bytes, clock, json_bodies, json_form, text_bodies, text_form, unsized,
line, fetch_positions, broker_times.
"""
