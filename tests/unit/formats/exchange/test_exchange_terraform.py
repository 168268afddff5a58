"""Terraform files as Terraform takes them, and states and plans as it prints them."""

from __future__ import annotations

import pytest

from kquota_spark.formats.exchange.terraform import read, write
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from tests.support.quotas.terraform_shows import resource, state

PRODUCE, FETCH, REQUEST, MUTATION = QuotaKey


PLAN = """{
 "format_version": "1.2", "terraform_version": "1.13.3",
 "planned_values": {"root_module": {
  "resources": [
   {"address": "kafka_quota.etl", "mode": "managed", "type": "kafka_quota", "name": "etl", "schema_version": 0,
    "values": {"config": {"consumer_byte_rate": 4000000, "request_percentage": 12.5},
               "entity_name": "etl \\"x\\"", "entity_type": "client-id"}, "sensitive_values": {"config": {}}},
   {"address": "kafka_topic.t", "mode": "managed", "type": "kafka_topic", "name": "t", "values": {"partitions": 3}},
   {"address": "data.kafka_quota.t", "mode": "data", "type": "kafka_quota", "name": "t", "values": {}}],
  "child_modules": [{"address": "module.users", "resources": [
   {"address": "module.users.kafka_quota.all", "mode": "managed", "type": "kafka_quota", "name": "all",
    "values": {"config": {"producer_byte_rate": "1048576"}, "entity_name": null, "entity_type": "user"}}]}]}},
 "resource_changes": [
  {"address": "kafka_quota.etl", "mode": "managed", "type": "kafka_quota", "name": "etl",
   "change": {"actions": ["create"], "before": null, "after_unknown": {"id": true, "config": {}}}}],
 "prior_state": {"format_version": "1.0", "terraform_version": "1.13.3",
  "values": {"root_module": {"resources": [
   {"address": "kafka_quota.old", "mode": "managed", "type": "kafka_quota", "name": "old",
    "values": {"config": {"producer_byte_rate": 1}, "entity_name": "old", "entity_type": "user"}}]}}}
}"""


def test_a_plan_is_read_as_what_will_be() -> None:
    assert read(PLAN) == {
        Entity(client_id='etl "x"'): {FETCH: 4_000_000.0, REQUEST: 12.5},
        Entity(DEFAULT): {PRODUCE: 1_048_576.0},
    }


def test_a_state_is_read_as_what_is_applied() -> None:
    assert read(state([resource("a", "ip", "10.0.0.1", {"connection_creation_rate": 5})])) == {
        IpEntity("10.0.0.1"): {IpQuotaKey.CONNECTION_CREATION_RATE: 5.0}
    }
    assert read('{"format_version":"1.0"}') == {}, "what Terraform prints of a state without resources"


@pytest.mark.parametrize(
    ("unknown", "attribute"),
    [
        ('{"entity_name": true}', "entity_name"),
        ('{"config": true}', "config"),
        ('{"config": {"consumer_byte_rate": true}}', "config"),
    ],
)
def test_what_only_an_apply_will_know_is_no_default(unknown: str, attribute: str) -> None:
    # A plan leaves an unknown name out, as it does with no name: the quota of the default.
    text = PLAN.replace('{"id": true, "config": {}}', unknown)
    with pytest.raises(
        ValueError, match=rf"^kafka_quota\.etl: {attribute} is known only after apply, expected"
    ):
        read(text)


def test_a_file_in_terraforms_language_gets_the_command_to_run() -> None:
    with pytest.raises(
        ValueError, match=r"^Terraform's language is not read, expected the output of terraform show"
    ):
        read('resource "kafka_quota" "a" {}')


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
