"""Lines of the broker's request log, in both of its forms.

In reading order: api_names, mutations, request, charged_bytes, clock, json_bodies, quota_edits, json_form,
text_bodies, text_form, line.
"""
