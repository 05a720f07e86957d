# Types of the part of huey 3.5 that the pool is built on; huey carries none.
from huey.api import Huey as Huey
from huey.api import crontab as crontab
