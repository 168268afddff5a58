"""The one error that a user is meant to see."""


class UserError(Exception):
    """One line for the user: what is wrong, where, and what to do.

    Commands print it as `kquota: <message>` and exit 1; it never comes with a traceback.
    """
