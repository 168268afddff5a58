"""Shadow quotas beside those in force, and the effect of real edits beside the predicted one.

In reading order: shadow_effect, edit_impact, kept_impacts.
"""
