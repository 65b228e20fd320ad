from .errors import error_body as error_body
