"""Training tools: weather, travel, maps, calendar, messages."""

from __future__ import annotations

from unmask.train.tooldata.records import ToolSpec, tool

TOOLS: tuple[ToolSpec, ...] = (
    tool(
        "get_weather",
        "weather",
        "weather_now fetch_forecast check_weather current_conditions",
        "Get the weather in a city.|Current weather for a place.|Weather lookup.",
        "city:city:place,location,town ?unit:temp_unit:units,scale,temp_unit",
        """
        (What's|What is|How is) the weather in {city}[ in {unit}]?
        (Tell me|Show me) the weather (in|for) {city}[, in {unit}]
        Is it warm in {city} right now?[ Use {unit}.]
        How hot is it in {city}[ in {unit}]?
        check the weather in {city}[ in {unit}]
        Weather in {city}[, {unit}]
        give me the forecast for {city}[ using {unit}]
        In {city}, what's the weather like[ in {unit}]?
        """,
        """
        Do I need a coat in {city}?[ Answer in {unit}.]
        I'm heading out in {city}, how does it look outside[ in {unit}]?
        look up current conditions for {city}[ in {unit}]
        """,
        result="temperature=int:2:34 sky=sky",
        reports="It is {temperature} degrees and {sky} in {city}.\nIn {city} it is {sky} with {temperature} degrees.",
    ),
    tool(
        "get_air_quality",
        "weather",
        "air_quality_index pollution_level check_air",
        "Get the air quality of a city.|Air pollution index.",
        "city:city:place,town,area",
        """
        How is the air quality in {city}?
        What's the air quality index (in|for) {city}?
        check the air quality in {city}
        Is the air clean in {city}?
        How polluted is {city} (right now|today)?
        Air quality in {city}
        get the pollution level for {city}
        """,
        """
        Is it safe to breathe outside in {city}?
        find out how smoggy {city} is
        """,
        result="index=int:12:160 rating=air",
        reports="The air quality in {city} is {rating} with an index of {index}.",
    ),
    tool(
        "get_sun_times",
        "weather",
        "sunrise_sunset sun_schedule daylight_times",
        "Get sunrise and sunset times.|Daylight hours for a date.",
        "city:city:place,location,town date:date:day,on_date,when",
        """
        When does the sun set in {city} on {date}?
        What time is sunrise in {city} on {date}?
        On {date}, when is sunset in {city}?
        get the sunrise and sunset times for {city} on {date}
        Sunset time in {city} for {date}
        tell me when the sun rises in {city} on {date}
        """,
        """
        How long will it stay light on {date} in {city}?
        look up daylight hours for {city}, {date}
        """,
        result="sunrise=time sunset=time",
        reports="In {city} the sun rises at {sunrise} and sets at {sunset}.",
    ),
    tool(
        "search_flights",
        "travel",
        "find_flights flight_search list_flights",
        "Search for flights.|Find flights between two cities.",
        "origin:city:from_city,departure,start destination:city:to_city,arrival,goal "
        "date:date:day,departure_date,travel_day ?cabin:cabin:travel_class,seat_class,fare_class",
        """
        (find|search for|look for) flights from {origin} to {destination} on {date}[ in {cabin}]
        (show|get) me flights from {origin} to {destination} for {date}[, {cabin}]
        I need a flight from {origin} to {destination} on {date}[ in {cabin}]
        Are there any flights to {destination} from {origin} on {date}[ in {cabin}]?
        On {date} I want to fly from {origin} to {destination}[ in {cabin}]
        What flights go from {origin} to {destination} on {date}?
        """,
        """
        I'm leaving {origin} for {destination} by plane on {date}[, {cabin}]
        pull up plane tickets to {destination} on {date}, departing {origin}[, {cabin}]
        """,
        result="flight=flight price=int:80:900 departs=time",
        reports=(
            "Flight {flight} leaves at {departs} and costs {price}.\nI found flight {flight} at {departs} for {price}."
        ),
    ),
    tool(
        "book_hotel",
        "travel",
        "reserve_hotel hotel_booking book_room",
        "Book a hotel room.|Reserve a hotel stay.",
        "city:city:place,town,location check_in:date:arrival_date,start_date,from_date "
        "nights:count:num_nights,stay,length",
        """
        book a hotel in {city} for {nights} nights from {check_in}
        I need a hotel in {city} from {check_in} for {nights} nights
        reserve a room in {city} for {nights} nights starting {check_in}
        (get|find) me a hotel room in {city} on {check_in} for {nights} nights
        For {nights} nights from {check_in}, book me a hotel in {city}
        I want to stay in {city} for {nights} nights, arriving {check_in}
        """,
        """
        arrange a {nights} night hotel stay in {city} beginning {check_in}
        I arrive in {city} on {check_in} and need a hotel for {nights} nights
        """,
        result="hotel=restaurant total=int:200:1400",
        reports="Your hotel {hotel} is booked for a total of {total}.\nI booked {hotel} in {city} for {total}.",
    ),
    tool(
        "get_flight_status",
        "travel",
        "flight_status track_flight check_flight",
        "Get the status of a flight.|Live flight status.",
        "flight:flight:flight_number,flight_code,number",
        """
        What's the status of flight {flight}?
        Is flight {flight} on time?
        check flight {flight}
        Has {flight} (landed|taken off) yet?
        track flight {flight}
        tell me whether {flight} is delayed
        Flight status for {flight}
        """,
        """
        Any news on my plane, {flight}?
        see if {flight} is running late
        """,
        result="status=state gate=int:2:60",
        reports="Flight {flight} is {status} at gate {gate}.",
    ),
    tool(
        "get_train_times",
        "travel",
        "train_schedule next_trains rail_timetable",
        "List trains between stations.|Train timetable.",
        "origin:station:from_station,start,departure destination:station:to_station,goal,arrival "
        "?after:time:after_time,earliest",
        """
        When is the next train from {origin} to {destination}[ after {after}]?
        (list|show) trains from {origin} to {destination}[ after {after}]
        I need a train from {origin} to {destination}[ after {after}]
        Which trains run from {origin} to {destination}[ after {after}]?
        get train times to {destination} from {origin}[ after {after}]
        Trains from {origin} to {destination}[ after {after}]
        """,
        """
        I'm at {origin} and must get to {destination} by rail[, leaving after {after}]
        look up the rail timetable for {origin} to {destination}[ later than {after}]
        """,
        result="next=time platform=int:2:18",
        reports="The next train leaves at {next} from platform {platform}.",
    ),
    tool(
        "get_directions",
        "maps",
        "route_to plan_route navigate find_route",
        "Get directions between two places.|Route planner.",
        "origin:place:start,from_place,begin destination:place:goal,to_place,end "
        "?mode:travel_mode:travel_mode,by,transport",
        """
        How do I get from {origin} to {destination}[ {mode}]?
        give me directions from {origin} to {destination}[ {mode}]
        (show|find) me the way from {origin} to {destination}[ {mode}]
        What's the best route to {destination} from {origin}[ {mode}]?
        navigate from {origin} to {destination}[ {mode}]
        Directions to {destination} from {origin}[, {mode}]
        """,
        """
        I'm at {origin}, guide me to {destination}[ {mode}]
        plan a trip starting at {origin} and ending at {destination}[ {mode}]
        """,
        result="minutes=int:5:90 km=num:1:40",
        reports="The route takes {minutes} minutes and is {km} km long.",
        clash="route",
    ),
    tool(
        "find_nearby",
        "maps",
        "nearby_places search_around places_near",
        "Find places near a location.|Search around a spot.",
        "category:venue:kind,place_type,what near:place:around,location,spot",
        """
        (find|show me|list) {category} near {near}
        Are there any {category} near {near}?
        Where are the closest {category} to {near}?
        I'm looking for {category} around {near}
        search for {category} close to {near}
        Near {near}, are there {category}?
        """,
        """
        Which {category} can I walk to from {near}?
        point me to {category} in the area of {near}
        """,
        result="name=restaurant meters=int:40:900",
        reports="The closest one is {name}, {meters} meters away.\n{name} is {meters} meters from there.",
    ),
    tool(
        "get_distance",
        "maps",
        "distance_between how_far measure_distance",
        "Get the distance between two cities.|Distance in kilometers.",
        "origin:city:from_city,first,start destination:city:to_city,second,end",
        """
        How far is it from {origin} to {destination}?
        What's the distance between {origin} and {destination}?
        tell me the distance from {origin} to {destination}
        How many kilometers is {origin} from {destination}?
        Distance from {origin} to {destination}
        measure the distance between {origin} and {destination}
        """,
        """
        How long is the way from {origin} to {destination} in kilometers?
        work out how many km separate {origin} and {destination}
        """,
        result="km=int:60:9000",
        reports="{origin} and {destination} are {km} km apart.\nThe distance is {km} km.",
        clash="route",
    ),
    tool(
        "create_event",
        "calendar",
        "add_event schedule_event new_appointment",
        "Create a calendar event.|Add to the calendar.",
        "title:event:name,summary,what date:date:day,on_date,when ?time:time:start_time,at,hour",
        """
        put {title} (on|in) my calendar (on|for) {date}[ at {time}]
        schedule {title} (on|for) {date}[ at {time}]
        create a calendar event for {title} on {date}[ at {time}]
        On {date}[ at {time}] I have {title}, put it in my calendar
        New event: {title} on {date}[ at {time}]
        I have {title} on {date}[ at {time}], add it to my calendar
        """,
        """
        block {date}[ at {time}] for {title}
        pencil in {title} for {date}[, {time}]
        """,
        result="id=order_id status==created",
        reports="I added {title} to your calendar for {date}.\nDone, {title} is scheduled for {date}.",
        clash="dated",
    ),
    tool(
        "cancel_event",
        "calendar",
        "delete_event remove_appointment drop_event",
        "Cancel a calendar event.|Remove an event.",
        "title:event:name,event_name,what date:date:day,on_date,when",
        """
        cancel {title} on {date}
        (remove|delete) {title} from my calendar on {date}
        My {title} on {date} is off, cancel it
        I can't attend {title} on {date}, please cancel it
        take {title} on {date} off my calendar
        call off {title} on {date}
        """,
        """
        I won't need {title} on {date} anymore, scrap it
        clear {title} from my schedule for {date}
        """,
        result="status==cancelled title=@title",
        reports="Your {title} on {date} is cancelled.\nI cancelled {title} on {date}.",
    ),
    tool(
        "list_events",
        "calendar",
        "show_agenda get_schedule day_events",
        "List events of a day.|Show the agenda.",
        "date:date:day,on_date,which_day",
        """
        What's on my calendar on {date}?
        (show|list) my events (on|for) {date}
        Do I have anything planned on {date}?
        Am I free on {date}?
        What is my schedule for {date}?
        tell me my appointments for {date}
        """,
        """
        How busy am I on {date}?
        read me the agenda for {date}
        """,
        result="first=event at=time count=int:1:6",
        reports="You have {count} events, the first is {first} at {at}.",
    ),
    tool(
        "send_email",
        "messages",
        "email_send compose_email write_mail",
        "Send an email.|Write and send mail.",
        "to:email:recipient,address,to_address subject:subject:title,topic,heading ?body:message:text,content,message",
        """
        send an email to {to} with the subject {subject}[ and the text {body}]
        (write|send) {to} an email with subject {subject}[ saying {body}]
        email {to}, subject {subject}[, text {body}]
        I need to email {to} with the subject {subject}[ and body {body}]
        With subject {subject}, send an email to {to}[ saying {body}]
        Email to {to}, subject: {subject}[, body: {body}]
        """,
        """
        drop a mail titled {subject} to {to}[ that says {body}]
        get an email off to {to} under the heading {subject}[ with the text {body}]
        """,
        result="status==sent id=order_id",
        reports="Your email to {to} was sent.\nI sent the email to {to}.",
    ),
    tool(
        "send_text",
        "messages",
        "text_message send_sms message_contact",
        "Send a text message.|Text a contact.",
        "contact:person:recipient,person,to message:message:text,body,content",
        """
        text {contact} that {message}
        (send|write) {contact} a (text|message) saying {message}
        tell {contact} that {message}
        Message {contact}: {message}
        send a text to {contact} saying {message}
        let {contact} know that {message}
        """,
        """
        Text for {contact}: {message}
        ping {contact} with the words {message}
        """,
        result="status==delivered to=@contact",
        reports="Your message to {contact} was delivered.\nI texted {contact}.",
    ),
    tool(
        "search_email",
        "messages",
        "find_emails inbox_search lookup_mail",
        "Search emails by sender.|Find mail in the inbox.",
        "sender:fullname:from_person,author,who ?subject:subject:about,title,topic",
        """
        find emails from {sender}[ with the subject {subject}]
        search my inbox for emails from {sender}[ about {subject}]
        Did {sender} email me[ about {subject}]?
        show me the mail from {sender}[ with subject {subject}]
        Any emails from {sender}[ about {subject}]?
        look for messages in my inbox sent by {sender}[ about {subject}]
        """,
        """
        Has {sender} written to my inbox[ regarding {subject}]?
        dig up what {sender} emailed me[ regarding {subject}]
        """,
        result="count=int:1:19 latest=subject",
        reports="I found {count} emails, the latest is {latest}.",
    ),
    tool(
        "call_contact",
        "messages",
        "start_call phone_contact dial",
        "Start a phone call.|Call someone.",
        "contact:fullname:person,name,who ?video:video:with_video,camera,use_video",
        """
        call {contact}[ {video}]
        (start|make) a call to {contact}[ {video}]
        Can I talk to {contact}[ {video}]? Call them
        I want to call {contact}[ {video}]
        phone {contact}[ {video}]
        Call to {contact}[, {video}]
        """,
        """
        get {contact} on the line[ {video}]
        I'd like to ring {contact}[ {video}]
        """,
        result="status==ringing contact=@contact",
        reports="I am calling {contact}, it is ringing.",
    ),
)
