"""Lines of the text form, as brokers of 0.10.2, 0.11, 1.1, 2.6 and 2.7 wrote them; only paths are shortened."""

from __future__ import annotations

_AT = "[2026-11-21 18:59:06,427] DEBUG Completed request:"
T_MS = 1_795_287_546_427
"""Their log time."""

_TAIL_27 = (
    "securityProtocol:SASL_PLAINTEXT,principal:User:alice,listener:SASL_PLAINTEXT,clientInformation:ClientInformation("
    "softwareName=confluent-kafka-python, softwareVersion=2.16.1-rdkafka-2.16.0) (kafka.request.logger)"
)
_TAIL_OLD = (
    "securityProtocol:SASL_PLAINTEXT,principal:User:alice,listener:SASL_PLAINTEXT (kafka.request.logger)"
)

PRODUCE_27 = (
    _AT
    + "RequestHeader(apiKey=PRODUCE, apiVersion=8, clientId=shop, correlationId=7) -- {acks=-1,timeout=30000,"
    "partitionSizes=[orders-0=27094]},response:{responses=[{topic=orders,partition_responses=[{partition=0,"
    "error_code=0,base_offset=7,log_append_time=-1,log_start_offset=0,record_errors=[],error_message=null}]}],"
    "throttle_time_ms=487} from connection 127.0.0.1:45007-127.0.0.1:59100-1;totalTime:14.02,requestQueueTime:0.527,"
    "localTime:6.698,remoteTime:4.987,throttleTime:487,responseQueueTime:1.288,sendTime:0.518," + _TAIL_27
).encode()
PRODUCE_27_AT_DEBUG = PRODUCE_27.replace(b"partitionSizes=[orders-0=27094]", b"numPartitions=1")

FETCH_27 = (
    _AT + "RequestHeader(apiKey=FETCH, apiVersion=12, clientId=reader, correlationId=12) -- {replica_id=-1,"
    "max_wait_ms=100,min_bytes=1,max_bytes=60000,isolation_level=1,session_id=0,session_epoch=-1,topics=[{topic=orders,"
    "partitions=[{partition=1,current_leader_epoch=0,fetch_offset=0,last_fetched_epoch=-1,log_start_offset=-1,"
    "partition_max_bytes=30000,_tagged_fields={}}],_tagged_fields={}}],forgotten_topics_data=[],rack_id=,"
    "_tagged_fields={}},response:{throttle_time_ms=0,error_code=0,session_id=0,responses=[{topic=orders,"
    "partition_responses=[{partition=1,error_code=0,high_watermark=0,last_stable_offset=0,log_start_offset=0,"
    "aborted_transactions=[],preferred_read_replica=-1,record_set=MemoryRecords(size=0, "
    "buffer=java.nio.HeapByteBuffer[pos=0 lim=0 cap=0]),_tagged_fields={}},{partition=0,error_code=0,high_watermark=47,"
    "last_stable_offset=47,log_start_offset=0,aborted_transactions=[],preferred_read_replica=-1,"
    "record_set=FileRecords(size=30000, file=/data/orders-0/00000000000000000000.log, start=0, end=30000),"
    "_tagged_fields={}}],_tagged_fields={}}],_tagged_fields={}} from connection 127.0.0.1:45007-127.0.0.1:51866-6;"
    "totalTime:9.22,requestQueueTime:3.467,localTime:3.762,remoteTime:1.184,throttleTime:0,responseQueueTime:0.076,"
    "sendTime:0.729," + _TAIL_27
).encode()

FETCH_26 = (
    _AT + "RequestHeader(apiKey=FETCH, apiVersion=11, clientId=reader, correlationId=12) -- {replica_id=-1,"
    "max_wait_time=100,min_bytes=1,max_bytes=60000,isolation_level=1,session_id=0,session_epoch=-1,topics=[{topic=orders,"
    "partitions=[{partition=0,current_leader_epoch=0,fetch_offset=0,log_start_offset=-1,partition_max_bytes=30000}]}],"
    "forgotten_topics_data=[],rack_id=},response:{throttle_time_ms=0,error_code=0,session_id=0,responses=[{topic=orders,"
    "partition_responses=[{partition_header={partition=0,error_code=0,high_watermark=47,last_stable_offset=47,"
    "log_start_offset=0,aborted_transactions=[],preferred_read_replica=-1},record_set=FileRecords(size=30000, "
    "file=/data/orders-0/00000000000000000000.log, start=0, end=30000)}]}]} from connection "
    "127.0.0.1:57607-127.0.0.1:40042-6;totalTime:6.366,requestQueueTime:0.381,localTime:4.677,remoteTime:0.504,"
    "throttleTime:0,responseQueueTime:0.053,sendTime:0.748," + _TAIL_27
).encode()

PRODUCE_11 = (
    _AT
    + "RequestHeader(apiKey=PRODUCE, apiVersion=5, clientId=shop, correlationId=8) -- {acks=-1,timeout=30000,"
    "partitionSizes=[orders-0=27094]},response:{responses=[{topic=orders,partition_responses=[{partition=0,error_code=0,"
    "base_offset=7,log_append_time=-1,log_start_offset=0}]}],throttle_time_ms=488} from connection "
    "127.0.0.1:57949-127.0.0.1:45554-1;totalTime:497.181,requestQueueTime:0.122,localTime:8.171,remoteTime:0.0,"
    "throttleTime:491.1,responseQueueTime:0.512,sendTime:0.497," + _TAIL_OLD
).encode()

FETCH_11 = (
    _AT + "RequestHeader(apiKey=FETCH, apiVersion=7, clientId=reader, correlationId=15) -- {replica_id=-1,"
    "max_wait_time=100,min_bytes=1,max_bytes=60000,isolation_level=1,session_id=0,epoch=-1,topics=[{topic=orders,"
    "partitions=[{partition=0,fetch_offset=7,log_start_offset=-1,max_bytes=30000}]}],forgetten_topics_data=[]},response:"
    "{throttle_time_ms=0,error_code=0,session_id=0,responses=[{topic=orders,partition_responses=[{partition_header="
    "{partition=0,error_code=0,high_watermark=47,last_stable_offset=47,log_start_offset=0,aborted_transactions=[]},"
    "record_set=org.apache.kafka.common.record.FileRecords@33c6073d}]}]} from connection "
    "127.0.0.1:57949-127.0.0.1:35282-6;totalTime:0.782,requestQueueTime:0.065,localTime:0.562,remoteTime:0.0,"
    "throttleTime:0.201,responseQueueTime:0.029,sendTime:0.135," + _TAIL_OLD
).encode()

PRODUCE_011 = (
    _AT
    + "{api_key=0,api_version=3,correlation_id=7,client_id=shop} -- {acks=-1,timeout=30000,partitionSizes="
    "[orders-0=27094]} from connection 127.0.0.1:40367-127.0.0.1:54668;totalTime:467.207000,requestQueueTime:0.125000,"
    "localTime:2.027000,remoteTime:0.000000,throttleTime:465.617000,responseQueueTime:0.174000,sendTime:0.492000,"
    + _TAIL_OLD
).encode()

PRODUCE_0102 = (
    _AT.replace("DEBUG", "TRACE")
    + "{api_key=0,api_version=2,correlation_id=7,client_id=shop} -- {acks=-1,timeout=30000,partitionSizes="
    "[orders-0=27102]} from connection 127.0.0.1:60035-127.0.0.1:53806;totalTime:474,requestQueueTime:1,localTime:4,"
    "remoteTime:0,responseQueueTime:1,sendTime:0," + _TAIL_OLD
).encode()

FETCH_0102 = (
    _AT.replace("DEBUG", "TRACE")
    + "{api_key=1,api_version=3,correlation_id=12,client_id=reader} -- {replica_id=-1,"
    "max_wait_time=100,min_bytes=1,max_bytes=60000,topics=[{topic=orders,partitions=[{partition=1,fetch_offset=0,"
    "max_bytes=30000}]}]} from connection 127.0.0.1:60035-127.0.0.1:55412;totalTime:134,requestQueueTime:0,"
    "localTime:25,remoteTime:104,responseQueueTime:1,sendTime:0," + _TAIL_OLD
).encode()

CREATE_TOPICS_27 = (
    _AT + "RequestHeader(apiKey=CREATE_TOPICS, apiVersion=4, clientId=rdkafka, "
    "correlationId=5) -- {topics=["
    "{name=orders,num_partitions=2,replication_factor=1,assignments=[],configs=[]}],timeout_ms=60000,validate_only=false},response:"
    "{throttle_time_ms=31,topics=[{name=orders,error_code=0,error_message=null}]} from connection "
    "127.0.0.1:45007-127.0.0.1:34638-1;totalTime:231.742,requestQueueTime:0.642,localTime:98.353,remoteTime:132.145,"
    "throttleTime:0,responseQueueTime:0.458,sendTime:0.142," + _TAIL_27
).encode()
