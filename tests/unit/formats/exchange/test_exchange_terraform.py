"""Terraform files as people write them, and as Terraform takes them."""

from __future__ import annotations

import pytest

from kquota_spark.formats.exchange.terraform import read, write
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import QuotaKey

PRODUCE, FETCH, REQUEST, MUTATION = QuotaKey


HAND_WRITTEN = """\
# quotas of the team
resource "kafka_quota" "etl" { // one line a key
  entity_type="client-id"
  entity_name = "e\\u0074l \\"x\\" $${y} %%{z}"

  config = {
    "consumer_byte_rate" = "4000000", producer_byte_rate : 3.5e6
    "request_percentage" = 12.5   # percent
  }
}
/* the default
   user */
resource "kafka_quota" "everybody" {
  entity_type = "user"
  config      = { "producer_byte_rate" = 1048576 }
}
resource kafka_quota_composite "pair" {
  entity {
    type = "user"
  }
  entity {
    type = "client-id"
    name = "<default>"
  }
  config = { controller_mutation_rate = "10" }
}
"""


def test_terraform_as_people_write_it() -> None:
    assert read(HAND_WRITTEN) == {
        Entity(client_id='etl "x" ${y} %{z}'): {FETCH: 4_000_000.0, PRODUCE: 3_500_000.0, REQUEST: 12.5},
        Entity(DEFAULT): {PRODUCE: 1_048_576.0},
        Entity(DEFAULT, "<default>"): {MUTATION: 10.0},
    }


def test_terraform_is_written_so_that_terraform_takes_it() -> None:
    quotas: QuotaSet = {
        Entity("${a}"): {PRODUCE: 1e6},
        Entity("_a_"): {FETCH: 2.0},
        Entity(client_id=DEFAULT): {REQUEST: 0.5, MUTATION: 10.0},
    }
    assert (
        write(quotas)
        == """\
resource "kafka_quota" "user_a" {
  entity_type = "user"
  entity_name = "$${a}"
  config = {
    producer_byte_rate = 1000000
  }
}

resource "kafka_quota" "user_a_2" {
  entity_type = "user"
  entity_name = "_a_"
  config = {
    consumer_byte_rate = 2
  }
}

resource "kafka_quota" "client_id_default" {
  entity_type = "client-id"
  config = {
    request_percentage       = 0.5
    controller_mutation_rate = 10
  }
}
"""
    ), "equal signs stand as terraform fmt aligns them"


def test_terraform_has_no_resource_for_pairs_and_says_so() -> None:
    quotas: QuotaSet = {Entity("a"): {PRODUCE: 1.0}, Entity(DEFAULT, "c"): {PRODUCE: 1.0}}
    with pytest.raises(ValueError, match=r"^users/<default>/clients/c: a kafka_quota has a user or .*pair$"):
        write(quotas)
